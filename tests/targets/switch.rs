//! What a switch answers, what it is asked, and the file of its constants.

use packets::switch::Constants;
use packets::switch::thrift::{answer, ask, call, reply};

/// An answer, a call and a file: what is accepted survives a round trip.
///
/// # Panics
///
/// If it does not.
pub fn switch(bytes: &[u8]) {
    /// The number of the call that the answers of the corpus are to.
    const SEQUENCE: u32 = 7;
    let mut again = Vec::new();
    if let Ok(Some(asked)) = call(bytes) {
        ask(&mut again, &asked.name, asked.sequence).expect("memory takes it");
        assert_eq!(call(&*again).ok().flatten(), Some(asked));
    }
    if let Ok(entries) = answer(bytes, "a", SEQUENCE) {
        let mut asked = Vec::new();
        ask(&mut asked, "a", SEQUENCE).expect("memory takes it");
        let asked = call(&*asked).ok().flatten().expect("a call");
        again.clear();
        reply(&mut again, &asked, Some(&entries)).expect("memory takes it");
        assert_eq!(answer(&*again, "a", SEQUENCE).ok(), Some(entries));
    }
    if let Ok(text) = core::str::from_utf8(bytes)
        && let Ok(constants) = Constants::written("fridge", text)
    {
        assert_eq!(Constants::written("fridge", &constants.text("")), Ok(constants));
    }
}
