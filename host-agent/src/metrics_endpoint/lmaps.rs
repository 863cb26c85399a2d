//! `/metrics/lmaps`: for each LMAP that judges, its last score over γ, and whether it is in alarm. A page of its own:
//! it is short, and asked for often.

use core::fmt::{self, Write as _};

use super::encoding::escaped;
use crate::control_plane::LmapScore;

/// The families of the page.
const RATIO: &str = "uview_lmap_score_ratio";
const ALARM: &str = "uview_lmap_alarm";

/// The page, as OpenMetrics text.
pub(super) fn text(lmaps: &[LmapScore]) -> String {
    let mut page = String::new();
    // Writing into a string cannot fail.
    _ = write(&mut page, lmaps);
    page
}

fn write(page: &mut String, lmaps: &[LmapScore]) -> fmt::Result {
    writeln!(page, "# TYPE {RATIO} gauge\n# HELP {RATIO} Last score over its threshold; above 1, it is unusual.")?;
    for LmapScore { lmap, ratio, .. } in lmaps {
        if let Some(ratio) = ratio {
            writeln!(page, "{RATIO}{{lmap=\"{}\"}} {ratio:?}", escaped(lmap))?;
        }
    }
    writeln!(page, "# TYPE {ALARM} gauge\n# HELP {ALARM} Whether it is in alarm.")?;
    for LmapScore { lmap, alarm, .. } in lmaps {
        writeln!(page, "{ALARM}{{lmap=\"{}\"}} {}", escaped(lmap), u8::from(*alarm))?;
    }
    page.push_str("# EOF\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_what_is_known() {
        let lmap = |lmap: &str, ratio, alarm| LmapScore { lmap: lmap.to_owned(), ratio, alarm };
        let page = text(&[lmap("shop/\"cart\"", Some(0.25), false), lmap("shop/silent", None, true)]);

        // The controller's tests read the same file.
        assert_eq!(page, include_str!("lmaps.txt"));
    }
}
