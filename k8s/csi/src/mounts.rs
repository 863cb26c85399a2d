//! What is mounted at a path, from the kernel's list (`/proc/thread-self/mountinfo`). Pure.

/// Something that is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Whether it is for reading only, and without devices, programs and their rights.
    pub(crate) is_guarded: bool,
}

/// The topmost mount at `path` in `list`; `None`: there is none.
pub(crate) fn at(list: &[u8], path: &[u8]) -> Option<Mount> {
    let mut found = None;
    for line in list.split(|byte| *byte == b'\n') {
        // Number, parent, device, root, mount point, options.
        let mut fields = line.split(|byte| *byte == b' ').skip(4);
        let (Some(point), Some(options)) = (fields.next(), fields.next()) else { continue };
        if unescaped(point) == path {
            let has = |wanted: &&[u8]| options.split(|byte| *byte == b',').any(|option| option == *wanted);
            let is_guarded = [&b"ro"[..], b"nosuid", b"nodev", b"noexec"].iter().all(has);
            found = Some(Mount { is_guarded });
        }
    }
    found
}

/// A path in the list: spaces, tabs, line feeds and backslashes stand as three octal digits behind a backslash.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        90 22 0:25 /uview /pods/a/mount rw,nosuid shared:9 - tmpfs tmpfs rw\n\
        91 90 0:25 /uview /pods/a/mount ro,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw\n\
        92 22 0:25 /uview /pods/b\\040\\134c/mount ro,nosuid,nodev - tmpfs tmpfs rw\n\
        nonsense\n\\9 \\ \\04 \\400 \\xyz \\";

    #[test]
    fn the_topmost_mount_at_a_path_is_found_whatever_its_name_and_the_list_has() {
        let mounted = |path: &str| at(LIST.as_bytes(), path.as_bytes()).map(|mount| mount.is_guarded);

        assert_eq!(mounted("/pods/a/mount"), Some(true));
        assert_eq!(mounted("/pods/b \\c/mount"), Some(false));
        assert_eq!([mounted("/pods/a"), mounted("/pods/a/mount/more"), mounted("nonsense")], [None; 3]);
    }
}
