//! The table: the target of each row, and how rows are printed.
//!
//! Owns: targets and layout. Never measures.

use crate::failure::Failure;
use crate::server::{Contender, Role};

/// A figure, or the reason why it is missing.
pub type Figure = Result<f64, Failure>;

/// The figure that our server has to reach.
#[derive(Clone, Copy)]
pub enum Target {
    /// At most this many times the floor's figure.
    TimesFloor(f64),
    /// At most this share of the first peer's figure.
    OfPeer(f64),
    /// At least this many times the first peer's figure.
    TimesPeer(f64),
    /// Less than this figure, which is that of a program without a column.
    Below(f64),
    /// At most this, in the row's unit.
    AtMost(f64),
    /// At least this, in the row's unit.
    AtLeast(f64),
    /// No target: the row explains others.
    None,
}

/// A row: a figure for each contender, in their order.
pub struct Row {
    /// The name of the measurement.
    pub name: String,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The figure that our server has to reach.
    pub target: Target,
    /// The figures, one for each contender.
    pub figures: Vec<Figure>,
}

impl Row {
    /// A row of figures in `unit`.
    pub fn new(name: impl Into<String>, unit: &'static str, target: Target, figures: Vec<Figure>) -> Self {
        Self { name: name.into(), unit, target, figures }
    }

    fn of(&self, contenders: &[Contender], role: Role) -> Option<f64> {
        let index = contenders.iter().position(|contender| contender.role == role)?;
        self.figures[index].as_ref().ok().copied()
    }

    /// Our figure divided by the floor's if the target names the floor, else by the first peer's.
    fn ratio(&self, contenders: &[Contender]) -> Option<f64> {
        let against = match self.target {
            Target::TimesFloor(_) => self.of(contenders, Role::Floor)?,
            Target::Below(other) => other,
            _ => self.of(contenders, Role::Peer)?,
        };
        let ratio = self.of(contenders, Role::Ours)? / against;
        ratio.is_finite().then_some(ratio)
    }

    fn is_met(&self, contenders: &[Contender]) -> Option<bool> {
        let ours = self.of(contenders, Role::Ours)?;
        match self.target {
            Target::TimesFloor(most) | Target::OfPeer(most) => Some(self.ratio(contenders)? <= most),
            Target::TimesPeer(least) => Some(self.ratio(contenders)? >= least),
            Target::Below(other) => Some(ours < other),
            Target::AtMost(most) => Some(ours <= most),
            Target::AtLeast(least) => Some(ours >= least),
            Target::None => None,
        }
    }

    fn target_text(&self) -> String {
        match self.target {
            Target::TimesFloor(most) => format!("≤ {most} x floor"),
            Target::OfPeer(most) => format!("≤ {most} x peer"),
            Target::TimesPeer(least) => format!("≥ {least} x peer"),
            Target::Below(other) => format!("< {}", rounded(other)),
            Target::AtMost(most) => format!("≤ {most}"),
            Target::AtLeast(least) => format!("≥ {least}"),
            Target::None => String::new(),
        }
    }

    /// A contender's figure. If the target names the floor, its multiple of the floor's figure follows.
    fn cell(&self, index: usize, contenders: &[Contender], notes: &mut Vec<String>) -> String {
        match &self.figures[index] {
            Ok(figure) => match (self.target, self.of(contenders, Role::Floor)) {
                (Target::TimesFloor(_), Some(floor)) => {
                    format!("{} ({:.2}x)", rounded(*figure), figure / floor)
                }
                _ => rounded(*figure),
            },
            Err(Failure::Meaningless) => "–".to_owned(),
            Err(failure) => {
                let note = format!("{}: {failure}", contenders[index].label);
                let number = notes.iter().position(|known| *known == note).unwrap_or_else(|| {
                    notes.push(note);
                    notes.len() - 1
                });
                format!("n/a [{}]", number + 1)
            }
        }
    }

    /// Whether the floor or our server has failed in this row. A peer may fail.
    pub fn is_unmeasured(&self, contenders: &[Contender]) -> bool {
        contenders.iter().zip(&self.figures).any(|(contender, figure)| {
            contender.role != Role::Peer
                && !matches!(figure, Ok(_) | Err(Failure::Meaningless | Failure::Skipped(_)))
        })
    }
}

/// Prints `rows` as a Markdown table, with the reasons for missing figures below it.
pub fn print(rows: &[&Row], contenders: &[Contender]) {
    let mut notes = Vec::new();
    let labels = contenders.iter().map(|contender| contender.label.as_str());
    let mut lines: Vec<Vec<String>> = vec![
        ["workload", "unit"]
            .into_iter()
            .chain(labels)
            .chain(["target", "ratio", "met?"])
            .map(str::to_owned)
            .collect(),
    ];
    for row in rows {
        let mut line = vec![row.name.clone(), row.unit.to_owned()];
        line.extend((0..contenders.len()).map(|index| row.cell(index, contenders, &mut notes)));
        line.push(row.target_text());
        line.push(row.ratio(contenders).map(rounded).unwrap_or_default());
        line.push(row.is_met(contenders).map_or("", |met| if met { "yes" } else { "NO" }).to_owned());
        lines.push(line);
    }
    print_aligned(&lines);
    for (index, note) in notes.iter().enumerate() {
        println!("\n[{}] {note}", index + 1);
    }
}

fn print_aligned(lines: &[Vec<String>]) {
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    for (index, line) in lines.iter().enumerate() {
        for (cell, &width) in line.iter().zip(&widths) {
            print!("| {cell:width$} ");
        }
        println!("|");
        if index == 0 {
            for &width in &widths {
                print!("|{}", "-".repeat(width + 2));
            }
            println!("|");
        }
    }
}

/// Three significant digits, or all digits of a larger whole number.
fn rounded(figure: f64) -> String {
    let decimals = match figure.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{figure:.decimals$}")
}
