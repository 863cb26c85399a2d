//! What NIC agents say that they may keep in memory, and keep: for the page.
//!
//! *Memory*: of each worker [`MAX_ROWS`] rows with [`MAX_USES`] uses each, and texts of [`MAX_TEXT`] characters: at
//! most half a megabyte, whatever it says.

use wire::id::WorkerId;
use wire::proto::control::{MemoryAccount, MemoryRow, MemoryUse};

use super::state::ControlPlane;

/// Rows of an account.
const MAX_ROWS: usize = 64;
/// What is counted of a row.
const MAX_USES: usize = 4;
/// Characters of a text.
const MAX_TEXT: usize = 200;

/// The same account, bounded; what was left out is given back.
pub(super) fn bounded(mut account: MemoryAccount) -> MemoryAccount {
    account.rows.truncate(MAX_ROWS);
    account.rows.shrink_to_fit();
    for MemoryRow { what, full, uses, metric, .. } in &mut account.rows {
        uses.truncate(MAX_USES);
        uses.shrink_to_fit();
        let counted = uses.iter_mut().map(|MemoryUse { what, .. }| what);
        [what, full, metric].into_iter().chain(counted).for_each(cut);
    }
    account
}

/// Cuts a text, and gives back what it had room for.
fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
    }
    text.shrink_to_fit();
}

impl ControlPlane {
    /// What connected NIC agents said last of their memory, by their workers' numbers. One of an earlier release says
    /// nothing.
    pub fn memory_accounts(&self) -> Vec<(WorkerId, MemoryAccount)> {
        let connected = self.workers.iter().filter(|(_, worker)| worker.is_connected());
        let said = connected.filter_map(|(id, worker)| Some((*id, worker.session.as_ref()?.account.clone()?)));
        said.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_bounded_whatever_a_worker_says() {
        let long = "λ".repeat(10_000);
        let one = MemoryUse { what: long.clone(), ..MemoryUse::default() };
        let (what, full, metric) = (long.clone(), long.clone(), long);
        let row = MemoryRow { what, full, metric, uses: vec![one; 100], ..MemoryRow::default() };

        let account = bounded(MemoryAccount { rows: vec![row; 1_000], resident_bytes: 7, ..MemoryAccount::default() });

        assert_eq!((account.rows.len(), account.resident_bytes), (MAX_ROWS, 7));
        assert!(account.rows.capacity() < 2 * MAX_ROWS, "{}", account.rows.capacity());
        for MemoryRow { what, full, metric, uses, .. } in &account.rows {
            assert!(uses.len() == MAX_USES && uses.capacity() < 2 * MAX_USES, "{}", uses.capacity());
            let mut texts = [what, full, metric].into_iter().chain(uses.iter().map(|of| &of.what));
            assert!(texts.all(|text| text.chars().count() == MAX_TEXT && text.capacity() < 1_000));
        }
    }
}
