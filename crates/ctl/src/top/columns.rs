//! Which columns of a table fit into a width, and how wide they are. Pure.
//!
//! A number is never cut: first counts are shortened (1.2M), then columns are left out, and then names are shortened.

/// The space between two columns.
const GAP: usize = 2;

/// The width that a column of names keeps when others are left out for it.
const MIN_NAME: usize = 20;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its header.
    pub header: &'static str,
    /// Columns with a greater number are left out first; 0 is never left out.
    pub rank: u8,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// A name, which is shortened at its beginning (a server) or in its middle (a tube).
    Name(String),
    /// A text that is shown whole.
    Text(String),
    /// A number that may be shortened.
    Count(u64),
}

impl Cell {
    fn text(&self, is_short: bool) -> String {
        match self {
            Self::Name(text) | Self::Text(text) => text.clone(),
            Self::Count(number) if is_short => short(*number),
            Self::Count(number) => number.to_string(),
        }
    }
}

/// The number in at most five characters: 9999, 12.3k, 1.2M. It is rounded down.
pub fn short(number: u64) -> String {
    if number < 10_000 {
        return number.to_string();
    }
    let thousands = number.ilog10() / 3;
    let (unit, name) = (1_000_u64.pow(thousands), ["", "k", "M", "G", "T", "P", "E"][thousands as usize]);
    match number / unit {
        whole if whole < 100 => format!("{whole}.{}{name}", number % unit / (unit / 10)),
        whole => format!("{whole}{name}"),
    }
}

/// The text in at most `width` characters, with `…` for the part that is left out: in the middle, or at the beginning.
pub fn elided(text: &str, width: usize, keep_end: bool) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else { return String::new() };
    let front = if keep_end { 0 } else { room.div_ceil(2) };
    let end = text.chars().skip(count - (room - front));
    text.chars().take(front).chain(['…']).chain(end).collect()
}

/// A table that fits into its width.
#[derive(Debug, PartialEq, Eq)]
pub struct Fitted {
    /// The headers of the columns that are shown.
    pub header: Vec<&'static str>,
    /// The rows with these columns.
    pub rows: Vec<Vec<String>>,
    /// The widths of the columns.
    pub widths: Vec<usize>,
}

/// Fits a table into `width` characters. The cells of a column are of one kind.
pub fn fit(columns: &[Column], rows: &[Vec<Cell>], width: usize) -> Fitted {
    let is_name = |column: &usize| rows.first().is_some_and(|row| matches!(row[*column], Cell::Name(_)));
    let texts = |is_short| -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| cell.text(is_short)).collect()).collect()
    };
    let widths = |texts: &[Vec<String>]| -> Vec<usize> {
        let width = |column: usize| {
            let cells = texts.iter().map(|row| row[column].chars().count());
            cells.chain([columns[column].header.len()]).max().unwrap_or(0)
        };
        (0..columns.len()).map(width).collect()
    };
    let total = |shown: &[usize], widths: &[usize]| {
        shown.iter().map(|column| widths[*column] + GAP).sum::<usize>().saturating_sub(GAP)
    };
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let mut cells = texts(false);
    let mut wide = widths(&cells);
    if total(&shown, &wide) > width {
        cells = texts(true);
        wide = widths(&cells);
    }
    // The widths to which names can be shortened.
    let mut narrow = wide.clone();
    shown
        .iter()
        .filter(|column| is_name(column))
        .for_each(|&column| narrow[column] = narrow[column].min(MIN_NAME));
    while total(&shown, &narrow) > width {
        let last = shown.iter().copied().max_by_key(|column| columns[*column].rank);
        let Some(last) = last.filter(|column| columns[*column].rank > 0) else { break };
        shown.retain(|column| *column != last);
    }
    let names: Vec<usize> = shown.iter().copied().filter(is_name).collect();
    for (position, column) in names.iter().enumerate() {
        let excess = total(&shown, &wide).saturating_sub(width);
        // The first of two names, a server, is shortened as far as possible; the last one as far as necessary.
        let can_give = wide[*column].saturating_sub(MIN_NAME);
        let gives = if position + 1 == names.len() { excess } else { excess.min(can_give) };
        wide[*column] = wide[*column].saturating_sub(gives);
        let keeps_end = names.len() > 1 && position == 0;
        cells.iter_mut().for_each(|row| row[*column] = elided(&row[*column], wide[*column], keeps_end));
    }
    let choose = |row: &Vec<String>| shown.iter().map(|column| row[*column].clone()).collect();
    Fitted {
        header: shown.iter().map(|column| columns[*column].header).collect(),
        rows: cells.iter().map(choose).collect(),
        widths: shown.iter().map(|column| wide[*column]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column { header: "TUBE", rank: 0 },
        Column { header: "READY", rank: 0 },
        Column { header: "TOTAL", rank: 1 },
        Column { header: "OLDEST", rank: 2 },
    ];

    fn fitted(name: &str, width: usize) -> String {
        let row = vec![
            Cell::Name(name.to_owned()),
            Cell::Count(1_234_567),
            Cell::Count(9_999_999_999),
            Cell::Text("3d 4h".to_owned()),
        ];
        let fitted = fit(&COLUMNS, &[row], width);
        let used: usize = fitted.widths.iter().map(|width| width + GAP).sum::<usize>() - GAP;
        assert!(used <= width, "{fitted:?}");
        fitted.rows[0].join(" ")
    }

    #[test]
    fn numbers_are_shortened_before_columns_are_left_out_and_names_last() {
        assert_eq!(fitted("mail", 80), "mail 1234567 9999999999 3d 4h");
        assert_eq!(fitted("mail", 30), "mail 1.2M 9.9G 3d 4h");
        assert_eq!(fitted("mail", 20), "mail 1.2M 9.9G");
        assert_eq!(fitted("mail", 11), "mail 1.2M");
        assert_eq!(fitted(&"x".repeat(30), 37), format!("{}…{} 1.2M 9.9G", "x".repeat(11), "x".repeat(11)));
        assert_eq!(fitted("abcdefghij", 12), "ab…ij 1.2M");
        // Two names: of the server the end stays.
        let columns = [COLUMNS[0], COLUMNS[0], COLUMNS[1]];
        let row = ["unix:/run/beanstalkd/queue.sock", "a-tube-with-a-long-name"]
            .map(|name| Cell::Name(name.to_owned()));
        let fitted = fit(&columns, &[[&row[..], &[Cell::Count(5)]].concat()], 50);
        assert_eq!(fitted.rows[0], ["…anstalkd/queue.sock", "a-tube-wit…-long-name", "5"]);
    }

    #[test]
    fn short_numbers_have_at_most_five_characters_and_are_never_more_than_the_number() {
        for (number, text) in [
            (9_999, "9999"),
            (10_000, "10.0k"),
            (99_999, "99.9k"),
            (999_999, "999k"),
            (1_000_000, "1.0M"),
            (1_999_999_999, "1.9G"),
            (123_456_789_012_345, "123T"),
            (u64::MAX, "18.4E"),
        ] {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn a_text_is_elided_to_any_width() {
        for width in 0..12 {
            for keep_end in [false, true] {
                assert!(elided("äbcdefghij", width, keep_end).chars().count() <= width);
            }
        }
        assert_eq!(elided("abcdefghij", 5, true), "…ghij");
    }
}
