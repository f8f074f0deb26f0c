//! The screen: a line about the cluster, the views, a table or a page, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};

use super::app::{App, Mode};
use super::rows::{Mood, View};
use crate::text;
use emmer::tables::SiloStatus;

/// Widest column, in characters.
const WIDTH_MAX: usize = 48;

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [head, tabs, body, foot] = areas.areas(frame.area());
    frame.render_widget(headline(app), head);
    frame.render_widget(tab_line(app), tabs);
    match &app.mode {
        Mode::Page { grain, text, from } => {
            let title = format!(" {}/{} ", grain.grain_type, text::plain(&grain.key.to_string()));
            let lines: Vec<Line<'_>> = text.lines().skip(*from).map(Line::from).collect();
            frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), body);
        }
        _ => draw_table(frame, app, body),
    }
    if app.mode == Mode::Help {
        draw_help(frame, body);
    }
    frame.render_widget(foot_line(app), foot);
}

fn headline(app: &App) -> Line<'static> {
    let picture = &app.picture;
    if app.seen == 0 {
        return Line::from("looking ...".dim());
    }
    let count = |status| picture.silos.iter().filter(|silo| silo.status == status).count();
    let own = || picture.silos.iter().filter_map(|silo| silo.own.as_ref());
    let turns: f64 = own().map(|own| own.turns_per_second).sum();
    let grains: u64 = own().map(|own| own.activations).sum();
    let waiting: u64 = own().map(|own| own.waiting).sum();
    let suspected = picture
        .silos
        .iter()
        .filter(|silo| silo.status != SiloStatus::Dead && !silo.suspected_by.is_empty())
        .count();
    let mut spans = vec![
        Span::from(format!("{} active", count(SiloStatus::Active))).bold(),
        Span::from(format!(
            "  view {}  grains {}  turns/s {turns:.0}  wait {}",
            picture.view,
            text::grouped(grains),
            text::grouped(waiting)
        )),
    ];
    for (count, words) in [(suspected, "suspected"), (count(SiloStatus::Dead), "dead of late")] {
        if count > 0 {
            spans.push(Span::from(format!("  {count} {words}")).fg(Color::Red).bold());
        }
    }
    if app.is_paused {
        spans.push("  paused".fg(Color::Yellow).bold());
    }
    if let Some(trouble) = &picture.trouble {
        spans.push(Span::from(format!("  {}", text::plain(trouble))).fg(Color::Red));
    }
    Line::from(spans)
}

fn tab_line(app: &App) -> Line<'static> {
    let tab = |(at, view): (usize, &View)| {
        let name = format!(" {} {} ", at + 1, view.name());
        if *view == app.view { Span::from(name).reversed() } else { Span::from(name).dim() }
    };
    Line::from(View::ALL.iter().enumerate().map(tab).collect::<Vec<_>>())
}

fn draw_table(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let rows = app.rows();
    app.selected = app.selected.min(rows.len().saturating_sub(1));
    let head = app.view.head();
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let cells = rows.iter().filter_map(|row| row.cells.get(at));
            let widest = cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0);
            widest.max(name.len() + 1).min(WIDTH_MAX)
        })
        .collect();
    let is_number =
        |at: usize| rows.iter().any(|row| row.cells.get(at).is_some_and(|c| c.is_number()));
    let header = head.iter().enumerate().map(|(at, name)| {
        let mark = match (at == app.sort(), app.is_reversed) {
            (false, _) => "",
            (true, false) => "▾",
            (true, true) => "▴",
        };
        let name = format!("{name}{mark}");
        let line = Line::from(name);
        Cell::from(if is_number(at) { line.right_aligned() } else { line })
    });
    let shown = rows.iter().map(|row| {
        let cells = row.cells.iter().map(|cell| {
            let line = Line::from(cell.text.clone());
            Cell::from(if cell.is_number() { line.right_aligned() } else { line })
        });
        Row::new(cells).style(match row.mood {
            Mood::Calm => Style::new(),
            Mood::Gone => Style::new().add_modifier(Modifier::DIM),
            Mood::Warning => Style::new().fg(Color::Yellow),
        })
    });
    let widths =
        widths.into_iter().map(|width| Constraint::Length(u16::try_from(width).unwrap_or(0)));
    let table = Table::new(shown, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected = (!rows.is_empty()).then_some(app.selected);
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

const HELP: &str = "\
1-8, Tab    another view
arrows      another row; PageUp, PageDown, Home, End
s, S        sort by the next column; the other way round
/           show rows that have a text; Esc shows all
p           pause
q           end

on a grain
Enter       look at it
d, D        end it; end it and drop its turns
m           move it to another silo

on a silo
c, u        take no new grains; take them again
r           empty it
x           have it leave the cluster";

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = u16::try_from(HELP.lines().count()).unwrap_or(0);
    let (width, height) = (60.min(area.width), (lines + 2).min(area.height));
    let x = area.x + (area.width - width) / 2;
    let at = Rect { x, y: area.y, width, height };
    frame.render_widget(Clear, at);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" Keys ")), at);
}

fn foot_line(app: &App) -> Line<'static> {
    match &app.mode {
        Mode::Filter => Line::from(format!("/{}▏", app.filter)),
        Mode::Asks(act) => {
            let question = act.question().unwrap_or_default();
            Line::from(format!("{} [y/N]", text::plain(&question)).fg(Color::Red).bold())
        }
        Mode::Page { .. } => Line::from("Esc back  r look again  d end  D drop turns".dim()),
        Mode::Help => Line::from("any key closes this".dim()),
        Mode::Table => {
            let mut spans = vec!["? keys  / filter  s sort  q end".dim()];
            if !app.filter.is_empty() {
                spans.insert(0, Span::from(format!("/{}  ", app.filter)));
            }
            if let Some(said) = &app.said {
                spans.push(Span::from(format!("   {}", text::plain(said))));
            }
            Line::from(spans)
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use emmer::admin::{Admin, AdminError, Question};
    use emmer::console::{Gather, Wants};
    use emmer::tables::{SiloEntry, SiloStatus, Timestamp};
    use emmer_wire::codec::encode_into;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    #[tokio::test]
    async fn of_a_thousand_silos_those_are_drawn_that_fit() {
        let row = |n: u16| {
            let address = format!("10.0.{}.{}:1:1", n / 250, n % 250).parse().unwrap();
            let mut row = SiloEntry::new(address, SiloStatus::Active, Timestamp::from_millis(1));
            row.instance_name = format!("silo-{n:04}").into();
            row
        };
        let rows: Vec<SiloEntry> = (0..1_000).map(row).collect();
        let mut gather = Gather::new(Admin::answered_by(move |_, question| {
            let mut answer = BytesMut::new();
            match question {
                Question::Members => encode_into(&mut answer, &rows).unwrap(),
                _ => return Err(AdminError::TimedOut),
            }
            Ok(answer.freeze())
        }));
        let mut app = App::default();
        app.see(gather.step(Wants::default()).await.clone());
        let mut terminal = Terminal::new(TestBackend::new(200, 50)).unwrap();
        let begin = std::time::Instant::now();
        for _ in 0..10 {
            terminal.draw(|frame| draw(frame, &mut app)).unwrap();
        }
        println!("1,000 silos are drawn in {:?}", begin.elapsed() / 10);
        let text: String =
            terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        let shown = text.matches("silo-0").count();
        assert!((30..50).contains(&shown), "{shown}");
    }
}
