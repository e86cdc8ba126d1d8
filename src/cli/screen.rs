//! The live screen of `towpath run`: a panel below the log lines, on a terminal only.
//!
//! The panel and the log share stderr: while it is up, every log line goes through [`LogWriter`], which sets it above
//! the panel. The terminal keeps its mode, so that Ctrl-C, scrolling and copying work as ever. What is shown is made by
//! [`super::panel`], which knows no terminal.

use std::{
    io::{self, IsTerminal, Stderr, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ratatui::{
    Terminal, TerminalOptions, Viewport,
    backend::CrosstermBackend,
    layout::Size,
    style::{Color, Style},
    text::{Line, Text},
    widgets::Widget,
};
use tokio::time::Instant;

use super::panel::Panel;
use crate::mirror::Watcher;

/// Twice a second: quick for eyes, nothing for the processor.
const REDRAW: Duration = Duration::from_millis(500);
/// Below this many rows and columns the panel would hide the log.
const LEAST: Size = Size { width: 60, height: 12 };

type Screen = Terminal<CrosstermBackend<Stderr>>;

/// The terminal while the panel is up. Whoever logs or draws holds it for the time of one write.
static SCREEN: Mutex<Option<Screen>> = Mutex::new(None);

fn screen() -> MutexGuard<'static, Option<Screen>> {
    // A panic in between leaves a half-drawn panel at worst.
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a panel can be shown at all: the log is for a person who looks at a terminal that can move its cursor.
pub(super) fn possible() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Takes the panel off when dropped.
pub(super) struct Shown(());

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(mut terminal) = screen().take() {
            // Whoever looked at it may have closed the terminal.
            let _ = terminal.clear();
            let _ = terminal.show_cursor();
        }
    }
}

/// Puts the panel up, with room for `flows`. `None` where the terminal is too small or does not answer; the periodic
/// line in the log does then.
pub(super) fn show(flows: usize) -> Option<(Shown, Watcher)> {
    let backend = CrosstermBackend::new(io::stderr());
    let size = ratatui::backend::Backend::size(&backend).ok()?;
    if size.width < LEAST.width || size.height < LEAST.height {
        return None;
    }
    let height = Panel::height(flows).min(size.height / 2);
    let options = TerminalOptions { viewport: Viewport::Inline(height) };
    let terminal = Terminal::with_options(backend, options).ok()?;
    *screen() = Some(terminal);
    let mut panel = Panel::new(Instant::now());
    let tell = Box::new(move |reports: &[_]| {
        if let Some(terminal) = screen().as_mut() {
            let width = terminal.size().map_or(LEAST.width, |size| size.width);
            let text = panel.text(reports, Instant::now(), width);
            let _ = terminal.draw(|frame| frame.render_widget(text, frame.area()));
        }
    });
    Some((Shown(()), Watcher { interval: REDRAW, tell }))
}

/// Where log lines go: above the panel, or to stderr while there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogWriter;

impl Write for LogWriter {
    /// `bytes` is one event, as the subscriber writes it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match screen().as_mut() {
            Some(terminal) => above(terminal, bytes)?,
            None => io::stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn above(terminal: &mut Screen, bytes: &[u8]) -> io::Result<()> {
    let width = usize::from(terminal.size()?.width).max(1);
    let event = String::from_utf8_lossy(bytes);
    let style = Style::new().fg(colour(&event));
    let mut lines = Vec::new();
    for line in event.lines() {
        let characters: Vec<char> = line.chars().filter(|one| !one.is_control()).collect();
        lines.extend(characters.chunks(width).map(|part| Line::styled(part.iter().collect::<String>(), style)));
    }
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    terminal.insert_before(height, |buffer| Text::from(lines).render(buffer.area, buffer))
}

/// The level stands behind the time.
fn colour(event: &str) -> Color {
    match event.split_whitespace().nth(1) {
        Some("ERROR") => Color::Red,
        Some("WARN") => Color::Yellow,
        _ => Color::Reset,
    }
}
