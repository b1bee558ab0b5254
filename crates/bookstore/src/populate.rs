//! Filling a shop: its database, and a directory with the books' covers.

mod chance;
mod covers;
mod mariadb;
mod postgres;
mod progress;
mod rows;
mod words;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use self::covers::Images;
use self::postgres::Population;
use self::progress::Progress;
use self::rows::{Covers, Rows};
use crate::Error;
use crate::database::is_mariadb;
use crate::names::Scale;

/// How a shop is filled.
#[derive(Debug, Args)]
pub struct Options {
    /// The database, which may not hold a shop yet: postgres://user:password@host/database, or mysql://…
    /// for MariaDB
    #[arg(long, value_name = "URL")]
    pub database: String,
    /// Emulated browsers that the shop is large enough for: 2,880 customers each
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=700_000))]
    pub browsers: u32,
    /// Books
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub items: u32,
    /// The directory for the books' covers: 25 KB for each book, in `thumbnail` and `cover`
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "no_images")]
    pub images: Option<PathBuf>,
    /// Makes so many covers, which the books share in turn (default: one for each book)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub covers: Option<u32>,
    /// Makes no covers: the shop's pages will show none
    #[arg(long, conflicts_with_all = ["images", "covers"])]
    pub no_images: bool,
    /// What decides all that is left to chance: the same number, the same rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Drops the shop that is there, if there is one
    #[arg(long)]
    pub replace: bool,
    /// Says nothing
    #[arg(long)]
    pub quiet: bool,
}

/// Fills a shop.
///
/// # Errors
///
/// If the database holds a shop that may not be replaced or can't be written, or the covers can't.
pub async fn run(options: Options) -> Result<(), Error> {
    let scale = Scale::of_browsers(options.browsers, options.items);
    let covers = Covers { count: options.covers.unwrap_or(options.items).min(options.items) };
    let rows = Arc::new(Rows::new(options.seed, scale, covers));
    let progress = Arc::new(if options.quiet { Progress::silent() } else { Progress::shown() });
    let url = options.database.as_str();
    let in_mariadb = is_mariadb(url);
    match (options.replace, in_mariadb) {
        (true, _) => {}
        (false, true) => mariadb::refuse_filled(url).await?,
        (false, false) => postgres::refuse_filled(url).await?,
    }
    if in_mariadb {
        mariadb::create(url).await?;
    } else {
        postgres::create(url).await?;
    }
    let painting = options.images.map(|directory| {
        let images = Images { directory, count: covers.count, seed: options.seed };
        let (rows, progress) = (Arc::clone(&rows), Arc::clone(&progress));
        tokio::task::spawn_blocking(move || images.write(&rows, &progress))
    });
    let population = Population { browsers: options.browsers, scale, seed: options.seed };
    if in_mariadb {
        mariadb::fill(url, &rows, &progress).await?;
        mariadb::finish(url, population, &progress).await?;
    } else {
        postgres::fill(url, &rows, &progress).await?;
        postgres::finish(url, population, &progress).await?;
    }
    if let Some(painting) = painting {
        painting.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    }
    if !options.quiet {
        println!(
            "{} books, {} customers and {} orders in {:.1} s",
            scale.items,
            scale.customers,
            scale.orders(),
            progress.elapsed().as_secs_f64()
        );
    }
    Ok(())
}
