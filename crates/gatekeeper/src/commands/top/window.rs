//! A window in front of the screen, and the styles of both.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Wrap};

pub(super) const QUIET: Style = Style::new().fg(Color::DarkGray);
pub(super) const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

/// A window in front of everything.
pub(super) fn pop_up(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'_>>) {
    let width = area.width.saturating_sub(4).min(100);
    let block = Block::bordered().title(title.to_owned()).padding(Padding::horizontal(1));
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    let height =
        u16::try_from(text.line_count(width.saturating_sub(4))).unwrap_or(u16::MAX).saturating_add(2);
    let height = height.min(area.height.saturating_sub(2));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(text.block(block), place);
}
