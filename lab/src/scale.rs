//! `cargo lab scale`: estimates how many services one core of a DPU can monitor, from published figures of cards,
//! measured costs, and formulas. Prints the tables of docs/scale.md; a test compares them.

mod figures;
mod model;
mod tables;

use std::fs;

use anyhow::{Context, Result, ensure};

use support::workspace;

/// Prints the tables; with `write`, also writes them into docs/scale.md.
///
/// # Errors
///
/// The page cannot be read or written, or lacks the marks of a table.
pub fn run(write: bool) -> Result<()> {
    let file = workspace().join("docs/scale.md");
    let tables = tables::all();
    for (name, table) in &tables {
        println!("{name}\n{table}");
    }
    if write {
        let page = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, filled(&page, &tables)?)?;
    }
    Ok(())
}

/// `page` with each table between its two marks.
fn filled(page: &str, tables: &[(&str, String)]) -> Result<String> {
    let mut filled = page.to_owned();
    for (name, table) in tables {
        filled = between_marks(&filled, name, table)?;
    }
    let marks = page.matches("<!-- end of ").count();
    ensure!(marks == tables.len(), "the page has places for {marks} tables, there are {}", tables.len());
    Ok(filled)
}

/// `page` with `table` between the marks `<!-- NAME -->` and `<!-- end of NAME -->`.
///
/// # Errors
///
/// The page lacks these marks.
pub fn between_marks(page: &str, name: &str, table: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let from = page.find(&begin).map(|at| at + begin.len());
    let place = from.zip(page.find(&end)).filter(|(from, to)| from <= to);
    let (from, to) = place.with_context(|| format!("the page has no place for the table {name:?}"))?;
    Ok([&page[..from], table, &page[to..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_tables_that_the_formulas_give() {
        let page = fs::read_to_string(workspace().join("docs/scale.md")).unwrap();

        let expected = filled(&page, &tables::all()).unwrap();

        assert!(page == expected, "docs/scale.md is not what `cargo lab scale --write` makes of it");
    }

    #[test]
    fn a_table_goes_between_its_marks_and_nowhere_else() {
        let tables = [("a", "| 1 |\n".to_owned())];

        let page = filled("x\n<!-- a -->\nold\n<!-- end of a -->\ny", &tables).unwrap();

        assert_eq!(page, "x\n<!-- a -->\n| 1 |\n<!-- end of a -->\ny");
        assert!(filled("no place", &tables).is_err());
        assert!(filled("<!-- end of a --> <!-- a -->\n", &tables).is_err());
        assert!(filled("<!-- a -->\n<!-- end of a --><!-- end of b -->", &tables).is_err());
    }
}
