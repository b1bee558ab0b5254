//! The screen: from top to bottom the process, the verdict, figures, curves, a panel, the keys. A wide
//! terminal shows the other panels beside the types.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline, Wrap};

use super::keys::{Mode, Panel, View};
use super::model::{Gate, Sample};
use super::window::{HEAD, QUIET, pop_up};
use super::words::{self, Level, Verdict};
use super::{Link, Shown, panels};
use crate::commands::table::{long_time, time};

/// The least terminal that has room for several panels, in columns and rows.
const WIDE: (u16, u16) = (150, 36);
/// The keys at the foot, and what they do.
const KEYS: [(&str, &str); 8] = [
    ("F1", "Help"),
    ("F2", "Gate"),
    ("F3", "Search"),
    ("F4", "Lane"),
    ("F5", "Panel"),
    ("F6", "SortBy"),
    ("F7", "Invert"),
    ("F10", "Quit"),
];

impl Level {
    fn style(self) -> Style {
        match self {
            Self::Good => Style::new().fg(Color::Green),
            Self::Warn => Style::new().fg(Color::Yellow),
            Self::Bad => Style::new().fg(Color::Red),
        }
    }
}

impl Shown {
    /// Seconds since this process began.
    pub(super) fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn verdict(&self, gate: Option<&Gate>) -> Verdict {
        let told = |level, title, text: &str| Verdict { level, title, text: text.to_owned() };
        match (&self.link, gate) {
            (Link::Lost(why), None) => {
                told(Level::Bad, "Gatekeeper can't be reached", &format!("{why}. Trying again …"))
            }
            (Link::Lost(why), Some(_)) => told(
                Level::Bad,
                "Gatekeeper can't be reached",
                &format!("What you see is old. {why}. Trying again …"),
            ),
            (Link::Connecting, _) => told(Level::Warn, "Connecting", &format!("to {} …", self.place)),
            (Link::Live, None) => told(Level::Warn, "Gatekeeper is starting", "No gate listens yet."),
            (Link::Live, Some(gate)) => words::verdict(gate, &self.world.phase),
        }
    }
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown, view: &mut View) {
    let area = frame.area();
    let is_wide = area.width >= WIDE.0 && area.height >= WIDE.1;
    let curves_height = if area.height >= WIDE.1 { 6 } else { 2 };
    let [title, verdict, figures, curves, rest, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(curves_height),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area);
    let gate = view.gate(shown);
    frame.render_widget(title_line(shown, gate, view), title);
    draw_verdict(frame, &shown.verdict(gate), verdict);
    if let Some(gate) = gate {
        frame.render_widget(figures_line(gate, usize::from(figures.width)), figures);
        draw_curves(frame, gate, curves);
        draw_panels(frame, (shown, gate), view, rest, is_wide);
    }
    frame.render_widget(foot_line(view), foot);
    match view.mode {
        Mode::Help => draw_help(frame, area),
        Mode::Detail => panels::detail(frame, gate, view, area),
        Mode::Browse | Mode::Search => {}
    }
}

fn title_line<'a>(shown: &'a Shown, gate: Option<&'a Gate>, view: &View) -> Line<'a> {
    let mut spans = vec![Span::styled(format!("Gatekeeper {} ", shown.world.version), HEAD)];
    if let Some(gate) = gate {
        let gates = &shown.world.gates;
        let at = gates.iter().position(|it| it.status.name == gate.status.name).unwrap_or(0) + 1;
        let of = if gates.len() > 1 { format!(" ({at} of {})", gates.len()) } else { String::new() };
        spans.push(Span::styled(format!("· gate {}{of}", gate.status.name), HEAD.fg(Color::Cyan)));
        let seen = if gate.status.mode == "observe" { ", only observes" } else { "" };
        spans.push(Span::raw(format!("{seen} · up {} · ", long_time(shown.world.uptime_seconds as f64))));
    }
    spans.push(match &shown.link {
        Link::Live => Span::styled("live", Style::new().fg(Color::Green)),
        Link::Connecting => Span::styled("connecting", Style::new().fg(Color::Yellow)),
        Link::Lost(_) => Span::styled("NOT CONNECTED", Style::new().fg(Color::Red).bold()),
    });
    if let Some(name) = view.missing() {
        spans.push(Span::styled(format!(" · there is no gate {name}"), Style::new().fg(Color::Red)));
    }
    Line::from(spans)
}

fn draw_verdict(frame: &mut Frame<'_>, verdict: &Verdict, area: Rect) {
    let title = Span::styled(format!("● {}: ", verdict.title), verdict.level.style().bold());
    let line = Line::from(vec![title, Span::raw(verdict.text.clone())]);
    frame.render_widget(Paragraph::new(line).wrap(Wrap { trim: true }), area);
}

/// The figures that fit, in this order. What says least goes first, and as a whole.
fn figures_line(gate: &Gate, columns: usize) -> Line<'static> {
    let status = &gate.status;
    let last = gate.last(1).next();
    let p95 = last.map_or("–".to_owned(), |it| time(it.times.upstream_p95 as f64 / 1e6));
    let refused = words::mean(gate, |it| it.refused);
    let bad = if refused > 0.0 { Level::Bad.style() } else { Style::new() };
    let waits = if status.queued > 0 { Level::Warn.style() } else { Style::new() };
    let bound = last.map_or(u64::from(status.connections), |it| it.bound);
    let longest = words::longest(gate);
    let waiting = if longest > 0.0 {
        format!("{} ≤{}", status.queued, time(longest))
    } else {
        status.queued.to_string()
    };
    let plain = Style::new();
    // Each with how early it goes.
    let mut figures = vec![
        (0, "served/s", words::rate(words::mean(gate, |it| it.served)), plain),
        (1, "p95", p95, plain),
        (0, "waiting", waiting, waits),
        (0, "in flight", format!("{}/{bound}", status.in_flight), plain),
        (if refused > 0.0 { 0 } else { 3 }, "refused/s", words::rate(refused), bad),
        (2, "clients", status.clients_connected.to_string(), plain),
    ];
    let width = |(_, name, value, _): &(u8, &str, String, Style)| name.len() + value.chars().count() + 3;
    while figures.iter().map(width).sum::<usize>() > columns + 2
        && let Some(most) = figures.iter().map(|it| it.0).max().filter(|most| *most > 0)
    {
        figures.retain(|it| it.0 < most);
    }
    let spans = figures.into_iter().flat_map(|(_, name, value, style)| {
        [Span::styled(format!("{name} "), QUIET), Span::styled(value, style.bold()), Span::raw("  ")]
    });
    Line::from_iter(spans)
}

/// A curve: its name, its value now, the value of a sample, and its color.
type Curve = (&'static str, fn(&Sample) -> u64, fn(u64) -> String, Color);

const CURVES: [Curve; 4] = [
    ("bound", |it| it.bound, |value| value.to_string(), Color::Cyan),
    ("served/s", |it| it.served.round() as u64, |value| value.to_string(), Color::Green),
    ("refused/s", |it| it.refused.round() as u64, |value| value.to_string(), Color::Red),
    ("wait p95", |it| it.times.wait_p95, |value| time(value as f64 / 1e6), Color::Yellow),
];

fn draw_curves(frame: &mut Frame<'_>, gate: &Gate, area: Rect) {
    let columns = Layout::horizontal([Constraint::Ratio(1, 4); 4]).spacing(2).split(area);
    for ((name, of, write, color), area) in CURVES.into_iter().zip(columns.iter()) {
        let values = folded(&gate.samples, usize::from(area.width), of);
        let now = gate.last(1).next().map_or(0, of);
        let (least, most) = (values.iter().min().copied(), values.iter().max().copied());
        let room = usize::from(area.width).saturating_sub(name.len() + 1 + write(now).chars().count());
        let range = match (least, most) {
            (Some(least), Some(most)) if most > least => range(&write(least), &write(most), room),
            _ => String::new(),
        };
        let [head, curve] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(*area);
        let line = Line::from(vec![
            Span::styled(format!("{name} "), QUIET),
            Span::styled(write(now), HEAD),
            Span::styled(range, QUIET),
        ]);
        frame.render_widget(line, head);
        frame.render_widget(Sparkline::default().data(&values).style(Style::new().fg(color)), curve);
    }
}

/// The range of a curve as far as there is room for it, in columns; never a part of a number.
fn range(least: &str, most: &str, room: usize) -> String {
    let forms = [format!(" {least}–{most}"), format!(" ≤{most}")];
    forms.into_iter().find(|form| form.chars().count() <= room).unwrap_or_default()
}

/// The samples in so many columns, each as high as the highest in it.
fn folded(samples: &VecDeque<Sample>, columns: usize, of: fn(&Sample) -> u64) -> Vec<u64> {
    let each = samples.len().div_ceil(columns.max(1)).max(1);
    let values: Vec<_> = samples.iter().map(of).collect();
    values.chunks(each).map(|chunk| chunk.iter().copied().max().unwrap_or(0)).collect()
}

fn draw_panels(frame: &mut Frame<'_>, facts: (&Shown, &Gate), view: &mut View, area: Rect, is_wide: bool) {
    let [tabs, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(2)]).areas(area);
    frame.render_widget(tab_line(view, facts.1), tabs);
    if !is_wide {
        return panels::draw(frame, facts, view, view.panel, area);
    }
    let [main, side] =
        Layout::horizontal([Constraint::Percentage(58), Constraint::Percentage(42)]).spacing(1).areas(area);
    panels::draw(frame, facts, view, view.panel, main);
    let others = Panel::ALL.into_iter().filter(|panel| *panel != view.panel && *panel != Panel::Types);
    let others: Vec<_> = others.collect();
    let heights = others.iter().map(|panel| match panel {
        Panel::Events => Constraint::Min(6),
        Panel::Refused => Constraint::Max(5),
        _ => Constraint::Max(9),
    });
    for (panel, area) in others.iter().zip(Layout::vertical(heights).split(side).iter()) {
        let block = Block::bordered().title(panel.name()).border_style(QUIET).title_style(HEAD);
        let inner = block.inner(*area);
        frame.render_widget(block, *area);
        panels::glance(frame, facts, *panel, inner);
    }
}

fn tab_line(view: &View, gate: &Gate) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, panel) in (1..).zip(Panel::ALL) {
        let count = match panel {
            Panel::Types => format!(" {}", view.all),
            Panel::Waiting if gate.status.queued > 0 => format!(" {}", gate.status.queued),
            _ => String::new(),
        };
        let style = if panel == view.panel { Style::new().reversed().bold() } else { QUIET };
        spans.push(Span::styled(format!(" {number} {}{count} ", panel.name()), style));
    }
    Line::from(spans)
}

fn foot_line(view: &View) -> Line<'static> {
    if view.mode == Mode::Search {
        let hint = Span::styled("   Enter keeps it, Esc clears it", QUIET);
        return Line::from(vec![Span::styled("Search: ", HEAD), Span::raw(view.search.clone() + "█"), hint]);
    }
    let keys = KEYS.into_iter().flat_map(|(key, name)| {
        [Span::raw(key), Span::styled(format!("{name:<7}"), Style::new().fg(Color::Black).bg(Color::Cyan))]
    });
    Line::from_iter(keys)
}

const HELP: [(&str, &str); 12] = [
    ("↑ ↓ PgUp PgDn Home End", "move"),
    ("Enter", "open the selected type"),
    ("/ F3", "show types whose text holds what you write"),
    ("\\ F4", "show one lane only"),
    ("< >  F6", "sort by another column"),
    ("I F7", "invert the order"),
    ("Tab F5  1–6", "another panel"),
    ("g F2", "the next gate"),
    ("Esc", "close, or show all types again"),
    ("q F10", "quit"),
    ("", "Rates, means and waits are of the last minute; p95 is since the start."),
    ("", "Nothing here changes the gate: see gatekeeper pause, reload, drain."),
];

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = HELP.map(|(keys, what)| match keys {
        "" => Line::styled(what, QUIET),
        _ => Line::from(vec![Span::styled(format!("{keys:<24}"), HEAD), Span::raw(what)]),
    });
    pop_up(frame, area, "Help", lines.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_whole_or_shorter_or_not_at_all() {
        assert_eq!(range("592", "901", 8), " 592–901");
        assert_eq!(range("592", "901", 7), " ≤901");
        assert_eq!(range("592", "901", 5), " ≤901");
        assert_eq!(range("592", "901", 4), "");
    }
}
