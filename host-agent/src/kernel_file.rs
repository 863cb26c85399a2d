//! Files that the kernel writes while they are read: those of /proc and of cgroups.
//!
//! A file of one record, such as `limits` or `status` of a process, comes at once if there is room for all of it. So a
//! read that leaves room was the last one: there is no other that finds the end, and none that asks for the size, which
//! the kernel does not know. Not for files of several records, such as `mountinfo`: a read of these ends behind the
//! last record that fits.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;

/// Room at first, in bytes. Nearly all files are smaller.
const ROOM: usize = 4096;

/// What is in `file` now: `most` bytes of it. `None` if it cannot be read, as when the process has ended, to which a
/// file belongs as long as it is open.
pub(crate) fn read_whole(file: &File, most: usize) -> Option<Vec<u8>> {
    let (mut bytes, mut got) = (vec![0; ROOM.min(most)], 0);
    loop {
        match file.read_at(&mut bytes[got..], got as u64) {
            Ok(more) => got += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return None,
        }
        if got < bytes.len() || got >= most {
            bytes.truncate(got);
            return Some(bytes);
        }
        bytes.resize((2 * got).min(most), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_of_any_size_is_read_as_far_as_it_may_be() {
        for (size, most) in [(0, 9), (5, 9), (9, 9), (10, 9), (ROOM, 1 << 20), (5 * ROOM + 7, 1 << 20), (9_000, 8_000)]
        {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let text: Vec<u8> = (0..size).map(|at| at as u8).collect();
            file.write_all(&text).unwrap();

            let found = read_whole(&File::open(file.path()).unwrap(), most);

            assert_eq!(found.as_deref(), Some(&text[..size.min(most)]), "{size} of {most}");
        }
    }

    #[test]
    fn a_file_that_stays_open_is_read_from_its_beginning_each_time() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&path, "before").unwrap();
        let file = File::open(&path).unwrap();

        assert_eq!(read_whole(&file, 9).as_deref(), Some(&b"before"[..]));
        std::fs::write(&path, "after").unwrap();
        assert_eq!(read_whole(&file, 9).as_deref(), Some(&b"after"[..]));
    }

    #[test]
    fn files_of_the_kernel_are_read_and_folders_are_not() {
        let open = |path: &str| File::open(path).unwrap();

        assert!(read_whole(&open("/proc/self/status"), 1 << 20).is_some_and(|text| text.ends_with(b"\n")));
        let limits = std::fs::read("/proc/self/limits").unwrap();
        assert_eq!(read_whole(&open("/proc/self/limits"), 1 << 20), Some(limits));
        assert_eq!(read_whole(&open("/proc/self"), 1 << 20), None);
    }
}
