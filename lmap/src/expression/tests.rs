use proptest::prelude::*;

use super::*;

fn value(text: &str, of: &[(&str, f64)]) -> f64 {
    let expression = Expression::parse(text).unwrap();
    let known = |name: usize| of.iter().find(|(known, _)| *known == expression.names()[name].text).unwrap().1;
    expression.evaluate(known)
}

#[test]
fn products_bind_more_than_sums_and_both_go_from_left_to_right() {
    let of = [("a", 8.0), ("b", 4.0), ("c", 2.0)];

    assert_eq!(value("a - b - c", &of), 2.0);
    assert_eq!(value("a/b/c", &of), 1.0);
    assert_eq!(value("a + b * c", &of), 16.0);
    assert_eq!(value("(a + b) * -c", &of), -24.0);
    assert_eq!(value("--a", &of), 8.0);
    assert_eq!(value("1.5e2 * c - .5", &of), 299.5);
    assert_eq!(value("max(a, min(b, c)) + abs(c - a) + sqrt(b)", &of), 16.0);
    assert_eq!(value("ln(exp(c))", &of), 2.0);
}

#[test]
fn names_are_those_of_metrics() {
    let expression = Expression::parse("http.errors / `http/requests{route=\"/a b\"}` + http.errors").unwrap();

    let names: Vec<_> = expression.names().iter().map(|name| (name.text.as_str(), name.at)).collect();
    assert_eq!(names, [("http.errors", 0), ("http/requests{route=\"/a b\"}", 14)]);
}

#[test]
fn what_is_wrong_is_named_with_its_position() {
    for (text, says) in [
        ("", "at 0: the end instead of a number, a name"),
        ("max -", "at 5: the end instead of a number"),
        ("max min", "at 4: 'm' instead of an operator or the end"),
        ("(max", "at 4: the end instead of an operator or )"),
        ("max # 2", "at 4: '#' has no meaning"),
        ("max + ü", "at 6: 'ü' has no meaning"),
        ("1.2.3 * max", "at 0: 1.2.3 instead of a finite number"),
        ("max + 1e999", "at 6: 1e999 instead of a finite number"),
        ("max + `x", "at 6: a backquote instead of a name"),
        ("3 * median(max)", "at 4: there is no function median"),
        ("max + min(max)", "at 6: min takes 2, not 1"),
        ("abs(max, min)", "at 0: abs takes 1, not 2"),
        ("abs()", "at 0: abs takes 1, not 0"),
        ("min(max, max, max, max)", "at 0: min takes 2, not 3"),
        ("1 + 2", "names no value"),
    ] {
        let error = Expression::parse(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn what_costs_too_much_is_refused() {
    let long = "a".repeat(MAX_TEXT + 1);
    assert_eq!(Expression::parse(&long), Err(ExpressionError::Length(MAX_TEXT + 1)));
    let deep = format!("{}a{}", "(".repeat(17), ")".repeat(17));
    assert_eq!(Expression::parse(&deep), Err(ExpressionError::Depth { at: 16 }));
    let many = vec!["a"; 40].join("+");
    assert!(matches!(Expression::parse(&many), Err(ExpressionError::Operations { .. })));
    let quantities: Vec<_> = (0..=MAX_QUANTITIES).map(|percent| format!("p{percent}")).collect();
    let refused = ReplicaExpression::new(&quantities.join("+"));
    assert!(matches!(refused, Err(ExpressionError::Operations { .. })), "{refused:?}");
}

#[test]
fn the_deepest_and_longest_expression_stays_inside_its_stack() {
    // Each level holds back a sum, a product and the first value of a function.
    let mut text = "a".to_owned();
    for _ in 0..15 {
        text = format!("1+2*min(3,{text})");
        if text.len() > MAX_TEXT {
            break;
        }
        if let Ok(expression) = Expression::parse(&text) {
            assert!(expression.evaluate(|_| 1.0).is_finite());
        }
    }
}

#[test]
fn replicas_are_one_value_by_quantities_of_theirs() {
    let of = |text: &str, values: &[f64]| ReplicaExpression::new(text).unwrap().evaluate(&mut values.to_vec());

    assert_eq!(of("max - min", &[3.0, 9.0, 4.0]), 6.0);
    assert_eq!(of("sum / count", &[3.0, 9.0]), 6.0);
    assert_eq!(of("max / p50 + mean", &[1.0, 2.0, 6.0]), 6.0);
    assert_eq!(of("p0 + p100", &[1.0, 2.0, 6.0]), 7.0);
}

#[test]
fn an_expression_without_a_finite_value_is_refused() {
    for text in ["sum / 0", "mean / (max - max)", "sqrt(-1 - max * max)", "ln(-abs(min))/0"] {
        assert_eq!(ReplicaExpression::new(text), Err(ExpressionError::NoNumber), "{text}");
    }
    // Not finite for some is allowed: the column is missing then.
    assert!(ReplicaExpression::new("max / min").is_ok());
    let unknown = ReplicaExpression::new("max - p101").unwrap_err().to_string();
    assert_eq!(unknown, "at 6: p101 is not known: min, max, sum, mean, count, and quantiles such as p90 are");
}

/// The definition, by sorting.
fn by_sorting(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    low + (position - position.floor()) * (high - low)
}

proptest! {
    #[test]
    fn a_quantile_is_that_of_the_sorted_values(
        values in prop::collection::vec(-1e6..1e6f64, 1..50),
        share in 0.0..=1.0f64,
    ) {
        let found = quantile(&mut values.clone(), share);

        let expected = by_sorting(&values, share);
        prop_assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} {expected}");
    }

    #[test]
    fn the_order_of_replicas_changes_nothing(
        (values, shuffled) in prop::collection::vec(-1000..1000i32, 1..20)
            .prop_flat_map(|values| (Just(values.clone()), Just(values).prop_shuffle())),
        text in prop::sample::select(vec!["max - min", "sum / count", "p90", "p50 * mean", "max / p99.9 + p12.5"]),
    ) {
        // Whole numbers, whose sums are exact.
        let of = |values: &[i32]| {
            let mut values: Vec<_> = values.iter().copied().map(f64::from).collect();
            ReplicaExpression::new(text).unwrap().evaluate(&mut values)
        };

        prop_assert_eq!(of(&values).to_bits(), of(&shuffled).to_bits());
    }

    #[test]
    fn any_text_is_an_expression_or_an_error(text in "[-+*/(),. `a-f0-9#mpinxsul]{0,80}") {
        if let Ok(expression) = Expression::parse(&text) {
            let _ = expression.evaluate(|_| 1.0);
        }
        let _ = ReplicaExpression::new(&text);
    }

    #[test]
    fn any_characters_are_an_expression_or_an_error(text in any::<String>()) {
        let _ = Expression::parse(&text);
    }
}
