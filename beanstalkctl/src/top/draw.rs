//! Draws the screen: a title, a table or a body, and a line of keys.

use super::app::{App, Prompt, View};
use super::backend::MAX_JOBS;
use super::rows::Row;
use crate::output::age;
use beanstalk_client::JobInfo;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState};

const TUBE_KEYS: &str =
    "enter jobs  s sort  r reverse  / filter  p pause  k kick buried  D delete all  q quit";
const JOB_KEYS: &str = "enter body  tab state  k kick  b bury  d delete  esc back";
const BODY_KEYS: &str = "up/down scroll  k kick  b bury  d delete  esc back";

const TUBE_HEADER: [&str; 12] = [
    "TUBE",
    "BURIED",
    "READY",
    "RESERVED",
    "DELAYED",
    "WAITING",
    "PUTS/S",
    "DELETES/S",
    "OLDEST",
    "WAIT P95",
    "RUN P95",
    "PAUSED",
];
const JOB_HEADER: [&str; 9] =
    ["ID", "PRI", "AGE", "LEFT", "TTR", "BYTES", "RESERVES", "RELEASES", "TIMEOUTS"];

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let [title, body, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Line::from(title_of(app)).style(Modifier::REVERSED), title);
    match &app.view {
        View::Tubes => draw_tubes(frame, app, body),
        View::Jobs(_) => draw_jobs(frame, app, body),
        View::Body(..) => {
            let first = app.scroll.min(app.body.len());
            let lines: Vec<Line<'_>> =
                app.body[first..].iter().map(|line| Line::from(line.as_str())).collect();
            frame.render_widget(Paragraph::new(lines), body);
        }
    }
    frame.render_widget(Line::from(last_line(app)).style(Modifier::DIM), keys);
}

fn title_of(app: &App) -> String {
    let servers = app.servers.join(", ");
    match &app.view {
        View::Tubes => {
            let filter =
                if app.filter.is_empty() { String::new() } else { format!(" matching \"{}\"", app.filter) };
            let order = if app.reversed { "last" } else { "first" };
            format!(" {servers}: {} tubes{filter}, {} {order} ", app.rows.len(), app.sort.word())
        }
        View::Jobs(of) => {
            let first = if app.jobs.len() == MAX_JOBS { "the first " } else { "" };
            let (server, count) = (&app.servers[of.server], app.jobs.len());
            format!(" {server}: {first}{count} {} jobs of {} ", of.state, of.tube)
        }
        View::Body(of, id) => format!(" {}: job {id} of {} ", app.servers[of.server], of.tube),
    }
}

fn last_line(app: &App) -> String {
    match (&app.prompt, &app.view) {
        (Some(Prompt::Filter), _) => format!("filter: {}_  (enter: keep, esc: all)", app.filter),
        (Some(Prompt::Confirm(what, _)), _) => format!("{what}? y/n"),
        (None, _) if !app.message.is_empty() => app.message.clone(),
        (None, View::Tubes) => TUBE_KEYS.to_owned(),
        (None, View::Jobs(_)) => JOB_KEYS.to_owned(),
        (None, View::Body(..)) => BODY_KEYS.to_owned(),
    }
}

fn draw_tubes(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let several = app.servers.len() > 1;
    let name = |row: &Row| match several {
        true => format!("{} {}", row.name, app.servers[row.server]),
        false => row.name.to_string(),
    };
    let rows: Vec<Vec<String>> = app.rows.iter().map(|row| tube_cells(row, name(row))).collect();
    let marked = |position: usize| app.rows[position].counts[3] > 0;
    draw_table(frame, area, &TUBE_HEADER, &rows, app.selected, &marked);
}

fn tube_cells(row: &Row, name: String) -> Vec<String> {
    let [ready, reserved, delayed, buried] = row.counts;
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        name,
        buried.to_string(),
        ready.to_string(),
        reserved.to_string(),
        delayed.to_string(),
        row.waiting.to_string(),
        rate(row.put_rate),
        rate(row.delete_rate),
        or_dash(row.oldest.map(age)),
        or_dash(row.p95[0].clone()),
        or_dash(row.p95[1].clone()),
        or_dash(Some(row.pause).filter(|pause| *pause > 0).map(age)),
    ]
}

fn draw_jobs(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let cells = |job: &JobInfo| {
        vec![
            job.id.to_string(),
            job.pri.to_string(),
            age(job.age),
            age(job.time_left),
            age(job.ttr),
            job.bytes.map_or("-".to_owned(), |bytes| bytes.to_string()),
            job.reserves.to_string(),
            job.releases.to_string(),
            job.timeouts.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = app.jobs.iter().map(cells).collect();
    draw_table(frame, area, &JOB_HEADER, &rows, app.selected, &|_| false);
}

/// Draws a table whose first column is text and whose other columns are numbers. Rows that are `marked` are bold.
fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    header: &[&str],
    rows: &[Vec<String>],
    selected: usize,
    marked: &dyn Fn(usize) -> bool,
) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        Constraint::Length(
            u16::try_from(cells.chain([header[column].len()]).max().unwrap_or(0)).unwrap_or(u16::MAX),
        )
    };
    let widths: Vec<Constraint> = (0..header.len()).map(width).collect();
    let cell = |(column, text): (usize, &str)| {
        let alignment = if column == 0 { Alignment::Left } else { Alignment::Right };
        Cell::from(Line::from(text.to_owned()).alignment(alignment))
    };
    let head = TableRow::new(header.iter().copied().enumerate().map(cell)).style(Modifier::BOLD);
    // Only the visible rows are made: a server may have 20,000 tubes.
    let visible = usize::from(area.height.saturating_sub(1)).max(1);
    let first = selected.saturating_sub(visible - 1);
    let shown = rows.iter().enumerate().skip(first).take(visible).map(|(position, row)| {
        let style = if marked(position) { Style::new().bold() } else { Style::new() };
        TableRow::new(row.iter().map(String::as_str).enumerate().map(cell)).style(style)
    });
    let table =
        Table::new(shown, widths).header(head).column_spacing(2).row_highlight_style(Modifier::REVERSED);
    let mut state = TableState::default().with_selected(Some(selected - first).filter(|_| !rows.is_empty()));
    frame.render_stateful_widget(table, area, &mut state);
}
