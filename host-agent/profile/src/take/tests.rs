//! What a runtime writes of the functions that it has compiled, whatever its bytes are.

use super::*;

/// A folder as that of a process of this user, with `map` where its runtime writes it.
fn process(map: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("root/tmp")).unwrap();
    fs::write(folder.path().join("status"), b"Name:\tnode\xff\nNSpid:\t4711\t7\n").unwrap();
    fs::write(folder.path().join("root/tmp/perf-7.map"), map).unwrap();
    folder
}

#[test]
fn broken_utf_8_in_a_map_of_compiled_functions_is_bounded_text() {
    let mut map = b"1000 10 caf\xff\xc0(\x80\xed)\n\xff\xfe 10 no number\n2000 10 \xff\n".to_vec();
    // Longer than a line is read, and in the middle of a character at its end.
    map.extend([b"3000 10 ".as_slice(), &"\u{20ac}".repeat(3_000).into_bytes()].concat());
    map.extend(b"\n4000 10 last\n");
    let folder = process(&map);

    let found = compiled(folder.path(), &[0x1005, 0x2005, 0x3005, 0x4005, 0x5005]);

    let names: Vec<_> = found.iter().map(|name| name.as_deref()).collect();
    assert_eq!((names[0], names[1]), (Some("caf\u{fffd}\u{fffd}(\u{fffd}\u{fffd})"), Some("\u{fffd}")));
    assert_eq!((names[3], names[4]), (Some("last"), None), "what comes after it is read");
    let long = names[2].unwrap();
    assert!(long.starts_with("\u{20ac}") && long.ends_with('…') && long.chars().count() < 200, "{long}");
}

#[test]
fn a_map_of_nothing_but_broken_bytes_names_nothing() {
    let folder = process(&[0xff, 0xc0, b' ', 0x80, b'\n'].repeat(100_000));

    assert_eq!(compiled(folder.path(), &[0, 0xff, u64::MAX]), [None, None, None]);
}
