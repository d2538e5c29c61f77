//! Draws the screen: a title, the sums, a table or a body, and a line of keys.

use beanstalk_client::JobInfo;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell as TableCell, Clear, Paragraph, Row as TableRow, Table, TableState};

use super::app::{App, Prompt, ShownServer, View};
use super::backend::MAX_JOBS;
use super::columns::{Cell, Column, elided, fit, short};
use super::rows::ShownTube;
use super::views::{BodyView, JobsView, TubesView};
use crate::output::{age, counted, visible};

const TUBE_KEYS: &str = "enter jobs  s sort  / filter  p pause  k kick  D delete  q quit";
const JOB_KEYS: &str = "enter body  tab state  k kick  b bury  d delete  esc back";
const BODY_KEYS: &str = "w wrap  x hex  k kick  b bury  d delete  esc back";
const HELP_KEY: &str = " ? help ";

const HELP: &[&str] = &[
    "arrows, Page Up/Down, Home, End   select; scroll a body",
    "Enter, Right                      jobs of the tube; body of the job",
    "Esc, Backspace, Left, q           back; q in the list of tubes: quit",
    "",
    "Tubes   s   sort by the next column      r   reverse the order",
    "        /   only names with a text       p   pause for an hour, or resume",
    "        k   kick all buried jobs         D   delete all jobs",
    "",
    "Jobs    Tab next state                   k   kick",
    "        b   bury                         d   delete",
    "",
    "Body    w   wrap long lines, or cut them x   bytes, or text",
    "",
    "red: buried jobs, or a server that is gone   yellow: paused",
    "-: the server does not report it   1.2M: shortened, there is no room",
];

const TUBE_COLUMNS: [Column; 13] = [
    Column { header: "SERVER", rank: 0 },
    Column { header: "TUBE", rank: 0 },
    Column { header: "BURIED", rank: 1 },
    Column { header: "READY", rank: 2 },
    Column { header: "RESERVED", rank: 3 },
    Column { header: "DELAYED", rank: 4 },
    Column { header: "WAITING", rank: 5 },
    Column { header: "PUTS/S", rank: 8 },
    Column { header: "DELETES/S", rank: 9 },
    Column { header: "OLDEST", rank: 7 },
    Column { header: "WAIT P95", rank: 10 },
    Column { header: "RUN P95", rank: 11 },
    Column { header: "PAUSED", rank: 6 },
];

const JOB_COLUMNS: [Column; 9] = [
    Column { header: "ID", rank: 0 },
    Column { header: "PRI", rank: 1 },
    Column { header: "AGE", rank: 2 },
    Column { header: "LEFT", rank: 3 },
    Column { header: "TTR", rank: 5 },
    Column { header: "BYTES", rank: 4 },
    Column { header: "RESERVES", rank: 6 },
    Column { header: "RELEASES", rank: 7 },
    Column { header: "TIMEOUTS", rank: 8 },
];

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let sums = u16::from(matches!(app.view, View::Tubes));
    let [title, head, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(sums),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let is_gone = app.servers.iter().any(|server| server.gone().is_some());
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let style = if is_gone { style.fg(Color::Red) } else { style };
    frame.render_widget(Line::from(title_of(app, usize::from(title.width))).style(style), title);
    match &app.view {
        View::Tubes => {
            frame.render_widget(Line::from(sums_of(&app.tubes)).style(Style::new().fg(Color::Cyan)), head);
            draw_tubes(frame, app, body);
        }
        View::Jobs(jobs, None) => draw_jobs(frame, jobs, body),
        View::Jobs(_, Some(shown)) => {
            let lines = shown.lines.iter().skip(shown.scroll).take(usize::from(body.height));
            let lines: Vec<Line<'_>> = lines.map(|line| Line::from(line.as_str())).collect();
            frame.render_widget(Paragraph::new(lines), body);
        }
    }
    draw_last_line(frame, app, keys);
    if app.prompt == Some(Prompt::Help) {
        draw_help(frame);
    }
}

fn draw_last_line(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let help = if app.prompt.is_none() { HELP_KEY } else { "" };
    let [left, right] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(help.len() as u16)]).areas(area);
    let dim = Style::new().add_modifier(Modifier::DIM);
    let text = visible(last_line(app).as_bytes(), false);
    let text = elided(&text, usize::from(left.width), false);
    let style = if app.prompt.is_none() { dim } else { Style::new().fg(Color::Yellow) };
    frame.render_widget(Line::from(text).style(style), left);
    frame.render_widget(Line::from(help).style(dim), right);
}

fn draw_help(frame: &mut Frame<'_>) {
    let all = frame.area();
    let width = HELP.iter().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4;
    let (width, height) = (width.min(all.width), (HELP.len() as u16 + 2).min(all.height));
    let area = Rect::new((all.width - width) / 2, (all.height - height) / 2, width, height);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" any key closes this ")), area);
}

/// The names of the servers, and the current view; the names are shortened if there is no room for both.
fn title_of(app: &App, width: usize) -> String {
    let (names, rest) = match &app.view {
        View::Tubes => title_of_tubes(app),
        View::Jobs(jobs, body) => {
            let server = &app.servers[jobs.of.server];
            let rest = match body {
                None => title_of_jobs(jobs, server),
                Some(BodyView { id, .. }) => {
                    let form = if app.form.hex { ", as bytes" } else { "" };
                    format!("job {id} of {}{form}", jobs.of.tube)
                }
            };
            (server.name.clone(), rest)
        }
    };
    let room = width.saturating_sub(rest.chars().count() + 4).max(8);
    format!(" {}: {rest} ", elided(&names, room, true))
}

fn title_of_tubes(app: &App) -> (String, String) {
    let name = |server: &ShownServer| match server.gone() {
        Some(_) => format!("{} is gone", server.name),
        None => server.name.clone(),
    };
    let names: Vec<String> = app.servers.iter().map(name).collect();
    let tubes = &app.tubes;
    let rest = if app.servers.iter().all(|server| server.gone().is_some()) {
        "no server answers".to_owned()
    } else if app.servers.iter().all(|server| server.answer.is_none()) {
        "connecting".to_owned()
    } else {
        let count = counted(tubes.rows.len() as u64, "tube");
        let filter = &tubes.filter;
        let filter = if filter.is_empty() { String::new() } else { format!(" matching \"{filter}\"") };
        format!("{count}{filter}, {} {}", tubes.sort.word(), if tubes.reversed { "last" } else { "first" })
    };
    (names.join(", "), rest)
}

fn title_of_jobs(jobs: &JobsView, server: &ShownServer) -> String {
    let (state, tube) = (jobs.of.state, &jobs.of.tube);
    match (&jobs.found, server.gone()) {
        (_, Some(_)) => "the server is gone".to_owned(),
        (None, None) => format!("searching for {state} jobs of {tube}"),
        (Some(jobs), None) => {
            let first = if jobs.len() == MAX_JOBS { "the first " } else { "" };
            format!("{first}{} of {tube}", counted(jobs.len() as u64, &format!("{state} job")))
        }
    }
}

/// The sums of the tubes that are shown.
fn sums_of(tubes: &TubesView) -> String {
    let sum = |of: &dyn Fn(&ShownTube) -> u64| short(tubes.rows.iter().map(of).fold(0, u64::saturating_add));
    format!(
        " buried {}  ready {}  reserved {}  delayed {}  waiting {}",
        sum(&|row| row.counts[3]),
        sum(&|row| row.counts[0]),
        sum(&|row| row.counts[1]),
        sum(&|row| row.counts[2]),
        sum(&|row| row.waiting),
    )
}

fn last_line(app: &App) -> String {
    let gone = app.servers.iter().find_map(|server| Some((server.name.as_str(), server.gone()?)));
    match (&app.prompt, gone) {
        (Some(Prompt::Filter), _) => format!("filter: {}_  (enter: keep, esc: all)", app.tubes.filter),
        (Some(Prompt::Confirm(what, _)), _) => format!("{what}? y/n"),
        (Some(Prompt::Help), _) => String::new(),
        (None, _) if !app.message.is_empty() => app.message.clone(),
        (None, Some((name, why))) if why.contains(name) => why.to_owned(),
        (None, Some((name, why))) => format!("{name}: {why}"),
        (None, None) => match app.view {
            View::Tubes => TUBE_KEYS.to_owned(),
            View::Jobs(_, None) => JOB_KEYS.to_owned(),
            View::Jobs(_, Some(_)) => BODY_KEYS.to_owned(),
        },
    }
}

fn draw_tubes(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let tubes = &app.tubes;
    // The column of the servers is there if there are several.
    let from = usize::from(app.servers.len() == 1);
    let cells = |row: &ShownTube| {
        let rate = |rate: Option<f64>| Cell::Text(rate.map_or("-".to_owned(), shown_rate));
        let or_dash = |text: Option<String>| Cell::Text(text.unwrap_or_else(|| "-".to_owned()));
        let [ready, reserved, delayed, buried] = row.counts;
        let cells = [
            Cell::Name(app.servers[row.server].name.clone()),
            Cell::Name(row.name.to_string()),
            Cell::Count(buried),
            Cell::Count(ready),
            Cell::Count(reserved),
            Cell::Count(delayed),
            Cell::Count(row.waiting),
            rate(row.put_rate),
            rate(row.delete_rate),
            or_dash(row.oldest.map(age)),
            or_dash(row.p95[0].clone()),
            or_dash(row.p95[1].clone()),
            or_dash(Some(row.pause).filter(|pause| *pause > 0).map(age)),
        ];
        cells[from..].to_vec()
    };
    let style = |row: &ShownTube| match row {
        row if row.counts[3] > 0 => Style::new().bold().fg(Color::Red),
        row if row.pause > 0 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    };
    let (first, shown) = visible_rows(&tubes.rows, tubes.selected, area);
    let rows: Vec<_> = shown.iter().map(|row| (cells(row), style(row))).collect();
    draw_table(frame, area, &TUBE_COLUMNS[from..], 2 - from, rows, tubes.selected - first);
}

fn shown_rate(rate: f64) -> String {
    if rate < 1_000.0 { format!("{rate:.1}") } else { short(rate as u64) }
}

fn draw_jobs(frame: &mut Frame<'_>, view: &JobsView, area: Rect) {
    let cells = |job: &JobInfo| {
        vec![
            Cell::Text(job.id.to_string()),
            Cell::Text(job.pri.to_string()),
            Cell::Text(age(job.age)),
            Cell::Text(age(job.time_left)),
            Cell::Text(age(job.ttr)),
            job.bytes.map_or(Cell::Text("-".to_owned()), Cell::Count),
            Cell::Count(job.reserves),
            Cell::Count(job.releases),
            Cell::Count(job.timeouts),
        ]
    };
    let (first, shown) = visible_rows(view.jobs(), view.selected, area);
    let rows: Vec<_> = shown.iter().map(|job| (cells(job), Style::new())).collect();
    draw_table(frame, area, &JOB_COLUMNS, 1, rows, view.selected - first);
}

/// The index of the first row that is visible, and the visible rows: a server may have 20,000 tubes.
fn visible_rows<T>(rows: &[T], selected: usize, area: Rect) -> (usize, &[T]) {
    let count = usize::from(area.height.saturating_sub(1)).max(1);
    let first = selected.saturating_sub(count - 1).min(rows.len());
    (first, &rows[first..rows.len().min(first + count)])
}

/// Draws the visible rows of a table, of which one is selected. The first `left` columns are text and stand left.
fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &[Column],
    left: usize,
    rows: Vec<(Vec<Cell>, Style)>,
    selected: usize,
) {
    let (cells, styles): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let fitted = fit(columns, &cells, usize::from(area.width));
    let widths =
        fitted.widths.iter().map(|width| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)));
    let cell = |(column, text): (usize, &str)| {
        let alignment = if column < left { Alignment::Left } else { Alignment::Right };
        TableCell::from(Line::from(text.to_owned()).alignment(alignment))
    };
    let head = TableRow::new(fitted.header.iter().copied().enumerate().map(cell)).style(Modifier::BOLD);
    let lines =
        fitted.rows.iter().zip(styles).map(|(row, style)| {
            TableRow::new(row.iter().map(String::as_str).enumerate().map(cell)).style(style)
        });
    let table =
        Table::new(lines, widths).header(head).column_spacing(2).row_highlight_style(Modifier::REVERSED);
    let selected = Some(selected).filter(|_| !cells.is_empty());
    let mut state = TableState::default().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

#[cfg(test)]
mod tests {
    use super::super::backend::BackendAnswer;
    use super::*;
    use crate::server::Tube;
    use beanstalk_client::parse_dictionary;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use std::time::Instant;

    fn tube(name: &str, numbers: [u64; 5]) -> Tube {
        let [ready, reserved, delayed, buried, waiting] = numbers;
        let data = format!(
            "---\ncurrent-jobs-ready: {ready}\ncurrent-jobs-reserved: {reserved}\ncurrent-jobs-delayed: \
             {delayed}\ncurrent-jobs-buried: {buried}\ncurrent-waiting: {waiting}\noldest-ready-age: \
             90061\nwait-time-p95: 12.345\nrun-time-p95: 0.5\npause-time-left: 3600\n"
        );
        Tube { name: name.parse().unwrap(), stats: parse_dictionary(data.as_bytes()).unwrap() }
    }

    fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cells = buffer.content().chunks(usize::from(width));
        cells.map(|line| line.iter().map(ratatui::buffer::Cell::symbol).collect()).collect()
    }

    fn app(servers: &[&str]) -> App {
        App::new(servers.iter().map(|name| (*name).to_owned()).collect())
    }

    const NUMBERS: [u64; 5] = [4_294_967_295, 1_234_567, 987_654, 12_345_678, 100_000];

    #[test]
    fn at_every_width_each_number_is_whole_or_shortened() {
        let mut app = app(&["127.0.0.1:11300", "queue-2.example.org:11300"]);
        app.take(BackendAnswer::Tubes(0, Ok(vec![tube("mail", NUMBERS)])), Instant::now());
        app.take(BackendAnswer::Tubes(1, Ok(vec![tube("reports", NUMBERS)])), Instant::now());
        let [ready, reserved, delayed, buried, waiting] = NUMBERS;
        for width in 20..200 {
            let lines = screen(&app, width, 10);
            let header: Vec<&str> = lines[2].split_whitespace().collect();
            let row: Vec<&str> = lines[3].split_whitespace().collect();
            for (name, number) in [
                ("BURIED", buried),
                ("READY", ready),
                ("RESERVED", reserved),
                ("DELAYED", delayed),
                ("WAITING", waiting),
            ] {
                let Some(column) = header.iter().position(|header| *header == name) else { continue };
                let whole = number.to_string();
                assert!([whole.as_str(), &short(number)].contains(&row[column]), "{width}: {lines:#?}");
            }
            if width >= 80 {
                assert!(["READY", "BURIED", "RESERVED", "DELAYED"].iter().all(|name| header.contains(name)));
                assert!(row[0] == "127.0.0.1:11300" && row[1] == "mail", "{lines:#?}");
                assert!(lines[4].contains(":11300") && lines[4].contains("reports"), "{lines:#?}");
            }
        }
        assert!(screen(&app, 80, 10)[1].contains("buried 24.6M  ready 8.5G  reserved 2.4M"), "the sums");
    }

    #[test]
    fn a_server_that_is_gone_has_not_0_tubes() {
        let mut app = app(&["one:1", "two:2"]);
        assert!(screen(&app, 80, 5)[0].contains("connecting"));
        app.take(BackendAnswer::Tubes(0, Ok(vec![tube("mail", NUMBERS)])), Instant::now());
        app.take(BackendAnswer::Tubes(1, Err("cannot connect to two:2: refused".to_owned())), Instant::now());
        let lines = screen(&app, 80, 5);
        assert!(lines[0].contains("one:1, two:2 is gone: 1 tube,"), "{lines:#?}");
        assert!(lines[4].starts_with("cannot connect to two:2: refused"), "{lines:#?}");
        app.take(BackendAnswer::Tubes(0, Err("the server closed the connection".to_owned())), Instant::now());
        let lines = screen(&app, 80, 5);
        assert!(lines[0].contains("no server answers") && !lines[0].contains("tubes"), "{lines:#?}");
        app.take(BackendAnswer::Tubes(0, Ok(Vec::new())), Instant::now());
        assert!(screen(&app, 80, 5)[0].contains("0 tubes"));
    }

    #[test]
    fn jobs_that_are_not_found_yet_are_being_searched_for() {
        let mut app = app(&["one:1"]);
        app.take(BackendAnswer::Tubes(0, Ok(vec![tube("mail", NUMBERS)])), Instant::now());
        app.on_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        assert!(screen(&app, 80, 5)[0].contains("searching for buried jobs of mail"));
        let View::Jobs(JobsView { of, .. }, None) = &app.view else { panic!("no jobs") };
        let of = of.clone();
        app.take(BackendAnswer::Jobs(of.clone(), Ok(Vec::new())), Instant::now());
        assert!(screen(&app, 80, 5)[0].contains("0 buried jobs of mail"));
        let data = b"---\nid: 1\ntube: mail\nstate: buried\npri: 0\nage: 0\nttr: 1\n";
        let job = JobInfo::from_stats(&parse_dictionary(data).unwrap()).unwrap();
        app.take(BackendAnswer::Jobs(of, Ok(vec![job])), Instant::now());
        assert!(screen(&app, 80, 5)[0].contains("1 buried job of mail"));
    }

    #[test]
    fn the_help_and_the_keys_fit_into_80_columns() {
        assert!(HELP.iter().all(|line| line.chars().count() <= 74));
        let room = 80 - HELP_KEY.len();
        assert!([TUBE_KEYS, JOB_KEYS, BODY_KEYS].iter().all(|keys| keys.len() <= room));
        let mut app = app(&["one:1"]);
        app.on_key(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
        let lines = screen(&app, 80, 24);
        assert!(HELP.iter().all(|help| lines.iter().any(|line| line.contains(help))), "{lines:#?}");
        app.on_key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE));
        assert_eq!(app.prompt, None, "the key closes the help and quits nothing");
    }

    #[test]
    fn a_terminal_of_any_size_can_be_drawn() {
        let mut app = app(&["one:1", "two:2"]);
        for tubes in [vec![tube("mail", NUMBERS), tube("x", [0; 5])], Vec::new()] {
            app.take(BackendAnswer::Tubes(0, Ok(tubes)), Instant::now());
            for prompt in [None, Some(Prompt::Help), Some(Prompt::Filter)] {
                app.prompt = prompt;
                for (width, height) in [(1, 1), (2, 9), (10, 2), (80, 24), (300, 3)] {
                    screen(&app, width, height);
                }
            }
        }
    }
}
