//! Groups of processes as trees of paths.

/// Whether the cgroup `path` is `above`, or below it.
#[must_use]
pub fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_below_itself_and_its_parents_and_not_below_one_with_a_longer_name() {
        for above in ["/shop/cart", "/shop/", "/shop", "/"] {
            assert!(is_below("/shop/cart", above), "{above}");
        }
        for above in ["/sho", "/shop/cart/a", "/shop/car"] {
            assert!(!is_below("/shop/cart", above), "{above}");
        }
    }
}
