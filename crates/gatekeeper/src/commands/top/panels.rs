//! The panels: types, what waits, what was refused, what was found, the service, events.

use std::time::{SystemTime, UNIX_EPOCH};

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};

use super::Shown;
use super::keys::{Column, Direction, Panel, View};
use super::model::{Gate, Recent};
use super::window::{HEAD, QUIET, pop_up};
use super::words;
use crate::commands::table::{cut, long_time, time, turns};

/// Draws a panel with all it has; the view scrolls it.
pub(super) fn draw(frame: &mut Frame<'_>, facts: (&Shown, &Gate), view: &mut View, panel: Panel, area: Rect) {
    if panel == Panel::Types {
        return types(frame, facts.1, view, area);
    }
    let text = Paragraph::new(lines(facts, panel)).wrap(Wrap { trim: false });
    let most = text.line_count(area.width).saturating_sub(usize::from(area.height));
    view.scroll = view.scroll.min(u16::try_from(most).unwrap_or(u16::MAX));
    view.page = usize::from(area.height);
    frame.render_widget(text.scroll((view.scroll, 0)), area);
}

/// Draws the beginning of a panel.
pub(super) fn glance(frame: &mut Frame<'_>, facts: (&Shown, &Gate), panel: Panel, area: Rect) {
    frame.render_widget(Paragraph::new(lines(facts, panel)).wrap(Wrap { trim: false }), area);
}

fn lines(facts: (&Shown, &Gate), panel: Panel) -> Vec<Line<'static>> {
    match panel {
        Panel::Types => Vec::new(),
        Panel::Waiting => waiting(facts.1),
        Panel::Refused => refused(facts.1),
        Panel::Found => found(facts.1),
        Panel::Service => service(facts.1),
        Panel::Events => events(facts),
    }
}

const WIDTHS: [u16; 7] = [6, 6, 6, 6, 6, 8, 8];
/// Below this width the reason takes two lines.
const ONE_LINE: u16 = 130;

fn types(frame: &mut Frame<'_>, gate: &Gate, view: &mut View, area: Rect) {
    let [table, why] =
        Layout::vertical([Constraint::Min(2), Constraint::Length(if area.width < ONE_LINE { 2 } else { 1 })])
            .areas(area);
    view.page = usize::from(table.height.saturating_sub(1));
    let heads = Column::ALL.map(|column| {
        let is_sorted = column == view.column;
        let mark = match view.direction {
            Direction::Natural if is_sorted => "▼",
            Direction::Inverted if is_sorted => "▲",
            _ => "",
        };
        let style = if is_sorted { Style::new().fg(Color::Black).bg(Color::Cyan) } else { Style::new() };
        let text = Line::styled(format!("{}{mark}", column.name()), style);
        Cell::from(if column == Column::Type || column == Column::Lane { text } else { text.right_aligned() })
    });
    let taken: u16 = WIDTHS.iter().map(|width| width + 1).sum();
    let width = usize::from(table.width.saturating_sub(taken)).max(1);
    // Only what can be seen is written.
    let first = view.selected.saturating_sub(view.page.saturating_sub(1) / 2);
    let first = first.min(view.rows.len().saturating_sub(view.page));
    let rows = view.rows.iter().skip(first).take(view.page).map(|row| cells(row, width));
    let widths = WIDTHS.map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
    let head = Row::new(heads).style(Style::new().fg(Color::Black).bg(Color::Green));
    let drawn = Table::new(rows, widths).header(head).row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(view.chosen().map(|_| view.selected - first));
    frame.render_stateful_widget(drawn, table, &mut state);
    let told = match view.chosen() {
        Some(row) => Line::styled(words::lane_why(row, &gate.status), QUIET),
        None if view.all == 0 => Line::styled("No requests yet.", QUIET),
        None => Line::styled(format!("None of {} types is like that. Esc shows all.", view.all), QUIET),
    };
    let narrowed = [view.lane.map(|lane| format!("lane {lane}")), Some(view.search.clone())];
    let narrowed: Vec<_> = narrowed.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    frame.render_widget(Paragraph::new(told).wrap(Wrap { trim: true }), why);
    if !narrowed.is_empty() {
        let text = format!(" {} of {}: {} ", view.rows.len(), view.all, narrowed.join(", "));
        frame.render_widget(Paragraph::new(text.reversed()).alignment(Alignment::Right), why);
    }
}

fn cells(row: &Recent, width: usize) -> Row<'static> {
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    let refused = if row.refused > 0 { Style::new().fg(Color::Red) } else { QUIET };
    let lane = match row.lane.as_str() {
        "short" => Color::Green,
        "long" => Color::Magenta,
        "variable" => Color::Blue,
        _ => Color::Yellow,
    };
    Row::new([
        right(words::rate(row.rate)),
        right(time(row.mean)),
        right(time(row.p95)),
        right(time(row.wait)),
        right(words::share(row.share)),
        right(row.refused.to_string()).style(refused),
        Cell::from(row.lane.clone()).style(Style::new().fg(lane)),
        Cell::from(cut(&row.label, width)),
    ])
}

/// The selected type, with its whole text.
pub(super) fn detail(frame: &mut Frame<'_>, gate: Option<&Gate>, view: &View, area: Rect) {
    let (Some(row), Some(gate)) = (view.chosen(), gate) else { return };
    let line = |name: &str, value: String| {
        Line::from(vec![Span::styled(format!("{name:<12}"), QUIET), Span::styled(value, HEAD)])
    };
    let counts = row.counts;
    let waiting = gate.waiting.iter().find(|it| it.label == row.label);
    let waiting = waiting.map_or("none".to_owned(), |it| {
        let longest = time(it.longest_ms as f64 / 1e3);
        format!(
            "{}, the longest for {longest}, for {}",
            it.requests,
            words::waits_for(&gate.status, &it.lane)
        )
    });
    let lines = vec![
        Line::from(row.label.clone()),
        Line::default(),
        line("id", row.id.clone()),
        line("lane", row.lane.clone()),
        Line::from(words::lane_why(row, &gate.status)),
        line("rate", format!("{} a second, {} of all work", words::rate(row.rate), words::share(row.share))),
        line(
            "time",
            format!("mean {}; since the start p50 {}, p95 {}", time(row.mean), time(row.p50), time(row.p95)),
        ),
        line("wait", format!("mean {}", time(row.wait))),
        line("waiting now", waiting),
        line("refused", format!("{} in the last minute", row.refused)),
        line(
            "since start",
            format!(
                "{} completed, {} failed, {} refused, {} left",
                counts.completed, counts.failed, counts.refused, counts.left
            ),
        ),
    ];
    pop_up(frame, area, "Request type", lines);
}

/// A line of a value, a name, and more.
fn item(value: String, name: String, more: String) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("{value:>12}  "), HEAD),
        Span::raw(name),
        Span::styled(if more.is_empty() { more } else { format!("  {more}") }, QUIET),
    ])
}

fn quiet(text: &str) -> Vec<Line<'static>> {
    vec![Line::styled(text.to_owned(), QUIET)]
}

fn waiting(gate: &Gate) -> Vec<Line<'static>> {
    if gate.waiting.is_empty() {
        return quiet("Nobody. Requests pass as they come.");
    }
    let items = gate.waiting.iter().map(|it| {
        let value = format!("{} ≤{}", it.requests, time(it.longest_ms as f64 / 1e3));
        let why = format!("waits for {}", words::waits_for(&gate.status, &it.lane));
        item(value, why, cut(&it.label, 200))
    });
    items.collect()
}

fn refused(gate: &Gate) -> Vec<Line<'static>> {
    let total = gate.status.requests.rejected_total;
    let reasons = gate.refused();
    if reasons.is_empty() {
        return quiet(if total > 0 { "Nothing in the last ten minutes." } else { "Nothing." });
    }
    let items = reasons.into_iter().map(|(name, count)| {
        item(count.to_string(), words::reason(name), format!("({name}, last ten minutes)"))
    });
    items
        .chain([item(total.to_string(), "since the start, by the judge".to_owned(), String::new())])
        .collect()
}

fn found(gate: &Gate) -> Vec<Line<'static>> {
    let found = words::found(&gate.status);
    let width = found.iter().map(|[name, ..]| name.chars().count()).max().unwrap_or(0);
    let items = found.into_iter().map(|[name, value, why]| {
        Line::from(vec![
            Span::styled(format!("{name:<width$}  "), QUIET),
            Span::styled(value, HEAD),
            Span::raw(format!("  {why}")),
        ])
    });
    items.collect()
}

fn service(gate: &Gate) -> Vec<Line<'static>> {
    let status = &gate.status;
    let mut lines = Vec::new();
    for it in &status.upstreams {
        let color = match it.state.as_str() {
            "up" => Color::Green,
            "down" => Color::Red,
            _ => Color::Yellow,
        };
        let failed = match (&it.last_error, it.last_error_seconds) {
            (Some(error), Some(seconds)) => format!("  last error {} ago: {error}", long_time(seconds)),
            _ => String::new(),
        };
        lines.push(Line::from(vec![
            Span::raw(format!("{} ", it.address)),
            Span::styled(it.state.clone(), Style::new().fg(color).bold()),
            Span::raw(format!(
                " since {}, {} failures{failed}",
                long_time(it.since_seconds),
                it.failures_total
            )),
        ]));
    }
    for class in &status.classes {
        let goal = class.goal.as_ref().map_or(String::new(), |goal| {
            let standing = class.standing.as_deref().unwrap_or("not judged yet");
            format!(", goal {goal}: {standing}")
        });
        let text = format!(
            "class {}: {}{goal}, {} wait, {} in flight, {} refused",
            class.class,
            turns(class, &status.classes),
            class.queued,
            class.in_flight,
            class.rejected_total
        );
        lines.push(Line::from(text));
    }
    lines.push(Line::from(format!(
        "connections: {} of {} in use, {} kept by sessions{}",
        status.connections_in_use,
        status.connections,
        status.connections_pinned,
        pins(gate)
    )));
    for pool in &status.pools {
        let owner = if pool.user.is_empty() {
            pool.database.clone()
        } else {
            format!("{}@{}", pool.user, pool.database)
        };
        lines.push(Line::from(format!("pool {owner}: {} open, {} idle", pool.connections, pool.idle)));
    }
    lines.push(Line::styled(
        format!(
            "clients connect at {}; {} logins have failed, {} clients were turned away",
            status.listen, status.logins_failed_total, status.clients_refused_total
        ),
        QUIET,
    ));
    lines
}

fn pins(gate: &Gate) -> String {
    let mut pins: Vec<_> = gate.status.pinned_by_reason.iter().collect();
    pins.sort();
    let pins: Vec<_> =
        pins.iter().map(|(name, count)| format!("{count} by {}", name.replace('_', " "))).collect();
    if pins.is_empty() { String::new() } else { format!(" ({})", pins.join(", ")) }
}

fn events((shown, gate): (&Shown, &Gate)) -> Vec<Line<'static>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let is_mine = |name: &Option<String>| name.as_ref().is_none_or(|name| *name == gate.status.name);
    let mut mine: Vec<_> = shown.world.events.values().filter(|it| is_mine(&it.gate)).collect();
    mine.sort_by_key(|it| std::cmp::Reverse(it.last_ms));
    let lines = mine.into_iter().map(|it| {
        let color = match it.level.as_str() {
            "error" => Color::Red,
            "warn" => Color::Yellow,
            _ => Color::Reset,
        };
        let ago = long_time((now - it.last_ms as f64 / 1e3).max(0.0));
        Line::from(vec![
            Span::styled(format!("{ago:>7} ago  "), QUIET),
            Span::styled(words::event(it), Style::new().fg(color)),
        ])
    });
    lines.collect()
}
