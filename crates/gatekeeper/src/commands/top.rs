//! `gatekeeper top`: a running gatekeeper live in a terminal, by what the page at `/` is told.
//!
//! A thread reads the stream and goes on trying; this one draws, and reads keys. Nothing is asked of the gate
//! but that stream, and nothing is changed. Texts of strangers are cleaned where they come in
//! ([`model::read`]).

use std::io::IsTerminal as _;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};

use crate::Failure;
use crate::cli::TopArgs;
use crate::commands::running::asked;

mod keys;
mod model;
mod panels;
mod screen;
mod stream;
mod window;
mod words;

use keys::{Next, View};
use model::World;
use stream::News;

/// The longest wait for a key, before news are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The most frames between the stream and the screen; then the stream waits.
const NEWS_MAX: usize = 8;

/// What the screen shows.
pub(super) struct Shown {
    world: World,
    link: Link,
    began: Instant,
    place: String,
}

/// Whether frames come.
pub(super) enum Link {
    /// Nothing has been heard yet.
    Connecting,
    Live,
    /// Why not.
    Lost(String),
}

/// Shows the facts of the page until a key or a signal ends it.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let remote = asked(&args.admin)?;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "top needs a terminal; `gatekeeper status` and `gatekeeper types` print what they know"
                .to_owned(),
        ));
    }
    let (sender, news) = sync_channel(NEWS_MAX);
    let place = remote.to_string();
    std::thread::spawn(move || stream::follow(&remote, &sender));
    let mut terminal = ratatui::try_init()
        .map_err(|error| Failure::Runtime(format!("this terminal can't be used: {error}")))?;
    let shown = Shown { world: World::default(), link: Link::Connecting, began: Instant::now(), place };
    let ended = show(&mut terminal, &news, shown, View::new(args.gate.clone()));
    ratatui::restore();
    ended.map_err(|error| Failure::Runtime(format!("the terminal has failed: {error}")))
}

fn show(
    terminal: &mut DefaultTerminal,
    news: &Receiver<News>,
    mut shown: Shown,
    mut view: View,
) -> std::io::Result<()> {
    let mut is_stale = true;
    loop {
        loop {
            match news.try_recv() {
                Ok(News::Frame(frame)) => {
                    shown.link = Link::Live;
                    shown.world.take(*frame, shown.began.elapsed().as_secs_f64());
                }
                Ok(News::Lost(why)) => shown.link = Link::Lost(why),
                Ok(News::End) => return Ok(()),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
            is_stale = true;
        }
        if is_stale {
            view.follow(&shown);
            terminal.draw(|frame| screen::draw(frame, &shown, &mut view))?;
        }
        is_stale = event::poll(LOOK)?;
        if is_stale
            && let Input::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && view.press(key) == Next::Quit
        {
            return Ok(());
        }
    }
}
