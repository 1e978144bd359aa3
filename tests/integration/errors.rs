//! The table of errors in the book, and what errors answer.

use std::collections::BTreeMap;

use resilience::Error;

const PAGE: &str = include_str!("../../docs/src/errors.md");

/// Code, status, and whether it says when to try again: of each row of the page's table.
fn documented() -> BTreeMap<String, (u16, bool)> {
    let rows = PAGE
        .lines()
        .filter(|line| line.starts_with("| `") && !line.contains("| `error` |"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [code, status, wait, what] = cells[..] else {
            panic!("four cells: {row}");
        };
        assert!(!what.is_empty(), "{row}");
        let code = code.trim_matches('`').to_owned();
        (code, (status.parse().expect("a number"), wait == "yes"))
    })
    .collect()
}

#[test]
fn the_books_table_is_the_codes() {
    let cases = Error::cases().iter();
    let coded: BTreeMap<_, _> = cases
        .map(|case| (case.code.to_owned(), (case.status.as_u16(), case.says_when)))
        .collect();
    assert_eq!(documented(), coded);
    assert_eq!(coded.len(), Error::cases().len(), "each code stands once");
}
