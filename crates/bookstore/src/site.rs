//! The shop over HTTP: the fourteen pages, the covers, and two addresses for programs.

mod connections;
mod failed;
mod failure;
mod images;
mod layout;
mod locking;
mod pages;
mod session;
mod shop;
mod store;
mod visitor;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use clap::{Args, ValueEnum};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OnceCell;

use self::connections::Connections;
use self::failure::Failure;
use self::locking::Locks;
use self::pages::{admin, browse, cart, checkout, orders, search};
use self::session::Manner;
use self::shop::Shop;
use crate::Error;
use crate::interaction::Interaction;
use crate::names::Scale;

pub use self::connections::Isolation;
pub use self::locking::Locking;
pub use self::session::OrderLines;
pub use self::shop::Transactions;

/// The longest form, in bytes.
const MAX_FORM: usize = 64 * 1024;

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is
    On,
    /// It isn't
    Off,
}

/// How the shop is served.
#[derive(Debug, Args)]
pub struct Options {
    /// The database that was filled: postgres://user:password@host/database, or mysql://… for MariaDB
    #[arg(long, value_name = "URL")]
    pub database: String,
    /// The directory with the books' covers (default: the shop shows none)
    #[arg(long, value_name = "DIRECTORY")]
    pub images: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// What is a transaction
    #[arg(long, value_enum, default_value_t)]
    pub transactions: Transactions,
    /// How far transactions are kept from one another
    #[arg(long, value_enum, default_value_t)]
    pub isolation: Isolation,
    /// What interactions lock
    #[arg(long, value_enum, default_value_t)]
    pub locking: Locking,
    /// Connections of the pool
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Opens a connection for each interaction, and closes it behind it, instead of a pool
    #[arg(long, conflicts_with = "connections")]
    pub connect_per_request: bool,
    /// How long an interaction waits for a connection, or for the application's locks, before it answers 503
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    pub connection_timeout: Duration,
    /// How many interactions may wait for a connection; one more is answered 503 at once
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub waiting: u32,
    /// How often an interaction is done again that the database has undone for a collision; then it answers
    /// 503
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub retries: u32,
    /// Whether statements end with a comment that names the page's route, as sqlcommenter writes it:
    /// /*route='%2Fbest'*/
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub route_tags: Switch,
    /// Whether each connection of the pool prepares a statement once; off behind a pooler that doesn't
    /// follow prepared statements, such as PgBouncer where it pools transactions: before 1.21 always,
    /// before 1.24 unless max_prepared_statements is set
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub prepared_statements: Switch,
    /// Whether Buy Confirm counts all orders first, as the public servlets do
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub count_orders: Switch,
    /// How Best Sellers finds the lines of the last 3,333 orders
    #[arg(long, value_enum, default_value_t)]
    pub best_sellers: OrderLines,
    /// How Admin Confirm finds the lines of the customers who bought a book
    #[arg(long, value_enum, default_value_t)]
    pub bought_together: OrderLines,
}

/// Serves the shop until SIGINT or SIGTERM; then no new connection is accepted, and what is under way ends.
///
/// The database needn't be there yet. Says on the standard output where it listens.
///
/// # Errors
///
/// If it can't listen, or the database's URL can't be read.
pub async fn run(options: Options) -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "bookstore=info".into()),
        )
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let failed = || Error::io(format!("listening at {}", options.listen));
    let shop = Arc::new(shop(&options)?);
    let listener = TcpListener::bind(options.listen).await.map_err(failed())?;
    let address = listener.local_addr().map_err(failed())?;
    // Every visitor keeps a connection. With fewer descriptors fewer visitors are served, and no less right.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    // A page goes out at once, and not when the one before has been acknowledged.
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "a connection that may delay small pages");
        }
    });
    println!("listening at http://{address}");
    let mut end = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    axum::serve(listener, router(shop))
        .with_graceful_shutdown(async move {
            let [interrupt, terminate] = &mut end;
            match (interrupt, terminate) {
                (Ok(interrupt), Ok(terminate)) => {
                    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
                }
                _ => std::future::pending().await,
            }
        })
        .await
        .map_err(Error::io("serving"))
}

fn shop(options: &Options) -> Result<Shop, Error> {
    let size = (!options.connect_per_request).then_some(options.connections as usize);
    let timeout = options.connection_timeout;
    Ok(Shop {
        connections: Connections::new(
            &options.database,
            options.isolation,
            size,
            (options.waiting as usize, timeout),
        )?,
        locks: Locks::default(),
        transactions: options.transactions,
        isolation: options.isolation,
        manner: Manner {
            locking: options.locking,
            counts_orders: options.count_orders == Switch::On,
            best_sellers: options.best_sellers,
            bought_together: options.bought_together,
            prepares: options.prepared_statements == Switch::On,
        },
        has_tags: options.route_tags == Switch::On,
        retries: options.retries,
        timeout,
        images: options.images.clone(),
        items: OnceCell::new(),
    })
}

fn router(shop: Arc<Shop>) -> Router {
    Router::new()
        .route(Interaction::Home.route(), get(browse::home))
        .route(Interaction::NewProducts.route(), get(browse::new))
        .route(Interaction::BestSellers.route(), get(browse::best))
        .route(Interaction::ProductDetail.route(), get(browse::book))
        .route(Interaction::SearchRequest.route(), get(search::request))
        .route(Interaction::SearchResults.route(), get(search::results))
        .route(Interaction::ShoppingCart.route(), get(cart::cart).post(cart::cart))
        .route(Interaction::CustomerRegistration.route(), get(checkout::register))
        .route(Interaction::BuyRequest.route(), post(checkout::request))
        .route(Interaction::BuyConfirm.route(), post(checkout::confirm))
        .route(Interaction::OrderInquiry.route(), get(orders::inquiry))
        .route(Interaction::OrderDisplay.route(), post(orders::display))
        .route(Interaction::AdminRequest.route(), get(admin::request))
        .route(Interaction::AdminConfirm.route(), post(admin::change))
        .route("/images/{kind}/{name}", get(images::image))
        .route("/style.css", get(images::style))
        .route("/icon.svg", get(images::icon))
        .route("/scale", get(scale))
        .route("/healthz", get(async || "ok\n"))
        .fallback(async || Failure::NotFound("page"))
        .layer(DefaultBodyLimit::max(MAX_FORM))
        .with_state(shop)
}

/// `GET /scale`: how much the shop was filled with.
async fn scale(State(shop): State<Arc<Shop>>) -> Result<Json<Scale>, Failure> {
    Ok(Json(shop.scale().await?))
}
