//! What of the facts is shown, and how keys change that: as in `htop`.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::Shown;
use super::model::{Gate, Recent};

/// The longest text that is searched for, in characters.
const SEARCH_MAX: usize = 100;
/// The lanes that the table can be narrowed to.
const LANES: [&str; 4] = ["short", "long", "variable", "unknown"];

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    Quit,
}

/// A part of the facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    Types,
    Waiting,
    Refused,
    Found,
    Service,
    Events,
}

impl Panel {
    pub(super) const ALL: [Self; 6] =
        [Self::Types, Self::Waiting, Self::Refused, Self::Found, Self::Service, Self::Events];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Types => "Types",
            Self::Waiting => "Waiting",
            Self::Refused => "Refused",
            Self::Found => "Found",
            Self::Service => "Service",
            Self::Events => "Events",
        }
    }

    fn moved(self, by: usize) -> Self {
        moved(&Self::ALL, self, by)
    }
}

/// A column of the table of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Rate,
    Mean,
    P95,
    Wait,
    Share,
    Refused,
    Lane,
    Type,
}

impl Column {
    pub(super) const ALL: [Self; 8] =
        [Self::Rate, Self::Mean, Self::P95, Self::Wait, Self::Share, Self::Refused, Self::Lane, Self::Type];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "RATE",
            Self::Mean => "MEAN",
            Self::P95 => "P95",
            Self::Wait => "WAIT",
            Self::Share => "SHARE",
            Self::Refused => "REFUSED",
            Self::Lane => "LANE",
            Self::Type => "TYPE",
        }
    }

    fn sort(self, rows: &mut [Recent]) {
        let by = |of: fn(&Recent) -> f64| move |a: &Recent, b: &Recent| of(b).total_cmp(&of(a));
        match self {
            Self::Rate => rows.sort_by(by(|row| row.rate)),
            Self::Mean => rows.sort_by(by(|row| row.mean)),
            Self::P95 => rows.sort_by(by(|row| row.p95)),
            Self::Wait => rows.sort_by(by(|row| row.wait)),
            Self::Share => rows.sort_by(by(|row| row.share)),
            Self::Refused => rows.sort_by_key(|row| std::cmp::Reverse(row.refused)),
            Self::Lane => rows.sort_by(|a, b| a.lane.cmp(&b.lane)),
            Self::Type => {}
        }
    }
}

/// The one that lies so many places further, in a circle.
fn moved<T: Copy + PartialEq>(all: &[T], from: T, by: usize) -> T {
    let at = all.iter().position(|it| *it == from).unwrap_or(0);
    all[(at + by) % all.len()]
}

/// What keys mean just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    /// Letters are searched for.
    Search,
    Help,
    /// The selected type is open.
    Detail,
}

/// The direction of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Most first; names from A on.
    Natural,
    Inverted,
}

/// What is shown.
pub(super) struct View {
    /// The gate that was asked for, until it is there.
    wanted: Option<String>,
    gate: Option<String>,
    pub(super) panel: Panel,
    pub(super) column: Column,
    pub(super) direction: Direction,
    pub(super) lane: Option<&'static str>,
    pub(super) search: String,
    pub(super) mode: Mode,
    /// The types that are shown, in order.
    pub(super) rows: Vec<Recent>,
    /// How many there are in all.
    pub(super) all: usize,
    /// The selected row, and its type.
    pub(super) selected: usize,
    selected_id: Option<String>,
    /// How far the other panels are scrolled.
    pub(super) scroll: u16,
    /// How many rows fit; the screen says it.
    pub(super) page: usize,
    /// The names of all gates.
    gates: Vec<String>,
}

impl View {
    /// The types of a gate, or of the first one.
    pub(super) fn new(wanted: Option<String>) -> Self {
        Self {
            wanted,
            gate: None,
            panel: Panel::Types,
            column: Column::Share,
            direction: Direction::Natural,
            lane: None,
            search: String::new(),
            mode: Mode::Browse,
            rows: Vec::new(),
            all: 0,
            selected: 0,
            selected_id: None,
            scroll: 0,
            page: 10,
            gates: Vec::new(),
        }
    }

    /// The gate that is shown.
    pub(super) fn gate<'a>(&self, shown: &'a Shown) -> Option<&'a Gate> {
        let gates = &shown.world.gates;
        gates.iter().find(|gate| Some(&gate.status.name) == self.gate.as_ref()).or(gates.first())
    }

    /// Follows what is known now.
    pub(super) fn follow(&mut self, shown: &Shown) {
        self.gates = shown.world.gates.iter().map(|gate| gate.status.name.clone()).collect();
        if let Some(wanted) = self.wanted.take_if(|wanted| self.gates.contains(wanted)) {
            self.gate = Some(wanted);
        }
        let Some(gate) = self.gate(shown) else { return };
        let mut rows = gate.recent(shown.now());
        self.all = rows.len();
        let searched = self.search.to_lowercase();
        rows.retain(|row| {
            self.lane.is_none_or(|lane| row.lane == lane) && row.label.to_lowercase().contains(&searched)
        });
        rows.sort_by(|a, b| a.label.cmp(&b.label));
        self.column.sort(&mut rows);
        if self.direction == Direction::Inverted {
            rows.reverse();
        }
        self.rows = rows;
        let id = self.selected_id.as_ref();
        let followed = id.and_then(|id| self.rows.iter().position(|row| row.id == *id));
        self.selected = followed.unwrap_or(self.selected).min(self.rows.len().saturating_sub(1));
    }

    /// The gate that was asked for and isn't there.
    pub(super) fn missing(&self) -> Option<&str> {
        self.wanted.as_deref().filter(|_| !self.gates.is_empty())
    }

    /// The selected type.
    pub(super) fn chosen(&self) -> Option<&Recent> {
        self.rows.get(self.selected)
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> Next {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (self.mode, key.code) {
            (_, KeyCode::Char('c')) if is_control => return Next::Quit,
            (_, KeyCode::F(10)) => return Next::Quit,
            (Mode::Search, code) => self.search_for(code),
            (Mode::Help | Mode::Detail, KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q')) => {
                self.mode = Mode::Browse;
            }
            (_, KeyCode::Char('q')) => return Next::Quit,
            (_, code) => self.browse(code),
        }
        Next::GoOn
    }

    fn search_for(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) if self.search.chars().count() < SEARCH_MAX => self.search.push(letter),
            KeyCode::Backspace => _ = self.search.pop(),
            KeyCode::Esc => {
                self.search.clear();
                self.mode = Mode::Browse;
            }
            KeyCode::Enter => self.mode = Mode::Browse,
            KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown => self.browse(code),
            _ => {}
        }
    }

    fn browse(&mut self, code: KeyCode) {
        let (columns, panels) = (Column::ALL.len(), Panel::ALL.len());
        match code {
            KeyCode::F(1) | KeyCode::Char('h' | '?') => self.mode = Mode::Help,
            KeyCode::F(2) | KeyCode::Char('g') => self.next_gate(),
            KeyCode::F(3) | KeyCode::Char('/') => (self.panel, self.mode) = (Panel::Types, Mode::Search),
            KeyCode::F(4) | KeyCode::Char('\\') => self.next_lane(),
            KeyCode::F(5) | KeyCode::Tab => self.turn_to(self.panel.moved(1)),
            KeyCode::BackTab => self.turn_to(self.panel.moved(panels - 1)),
            KeyCode::Char(digit @ '1'..='6') => {
                self.turn_to(Panel::ALL[usize::from(digit as u8 - b'1')]);
            }
            KeyCode::F(6) | KeyCode::Char('>' | '.') => self.column = moved(&Column::ALL, self.column, 1),
            KeyCode::Char('<' | ',') => self.column = moved(&Column::ALL, self.column, columns - 1),
            KeyCode::F(7) | KeyCode::Char('I') => {
                self.direction = match self.direction {
                    Direction::Natural => Direction::Inverted,
                    Direction::Inverted => Direction::Natural,
                };
            }
            KeyCode::Enter if self.panel == Panel::Types && self.chosen().is_some() => {
                self.select(self.selected);
                self.mode = Mode::Detail;
            }
            KeyCode::Esc => {
                self.search.clear();
                self.lane = None;
            }
            code => self.travel(code),
        }
    }

    fn travel(&mut self, code: KeyCode) {
        let (page, last) = (self.page.max(1), self.rows.len().saturating_sub(1));
        let from = if self.panel == Panel::Types { self.selected } else { usize::from(self.scroll) };
        let to = match code {
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => from + 1,
            KeyCode::PageUp => from.saturating_sub(page),
            KeyCode::PageDown => from + page,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return,
        };
        if self.panel == Panel::Types {
            self.select(to.min(last));
        } else {
            // The screen knows where the panel ends.
            self.scroll = u16::try_from(to).unwrap_or(u16::MAX);
        }
    }

    fn select(&mut self, row: usize) {
        self.selected = row;
        self.selected_id = self.chosen().map(|row| row.id.clone());
    }

    fn turn_to(&mut self, panel: Panel) {
        (self.panel, self.scroll) = (panel, 0);
    }

    fn next_gate(&mut self) {
        let Some(first) = self.gates.first() else { return };
        let at = self.gates.iter().position(|name| Some(name) == self.gate.as_ref()).unwrap_or(0);
        self.gate = Some(self.gates.get(at + 1).unwrap_or(first).clone());
        (self.wanted, self.selected, self.selected_id, self.scroll) = (None, 0, None, 0);
    }

    fn next_lane(&mut self) {
        let at = self.lane.and_then(|lane| LANES.iter().position(|known| *known == lane));
        self.lane = at.map_or(LANES.first(), |at| LANES.get(at + 1)).copied();
    }
}
