//! The shop's command line.

use std::process::ExitCode;

use bookstore::{browse, check, populate, site};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "bookstore",
    about = "TPC-W: a bookstore over a real database, and the browsers that visit it"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fills a database with books, customers and orders, and a directory with the books' covers
    Populate(populate::Options),
    /// Serves the shop over HTTP
    Serve(site::Options),
    /// Looks whether the shop's books balance: stock, totals, orders
    Check(check::Options),
    /// Emulated browsers that visit a shop
    Browse(Box<browse::Options>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let well = |()| ExitCode::SUCCESS;
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(told) => {
            // Of flags that don't fit it is 1, too: 2 is a client that was the bottleneck.
            let is_error = told.use_stderr();
            let printed = told.print().is_ok();
            return if is_error || !printed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let done = match arguments.command {
        Command::Populate(options) => populate::run(options).await.map(well),
        Command::Serve(options) => site::run(options).await.map(well),
        Command::Check(options) => check::run(options).await.map(well),
        Command::Browse(options) => browse::run(*options).await,
    };
    match done {
        Ok(status) => status,
        Err(error) => {
            eprintln!("bookstore: {error}");
            ExitCode::FAILURE
        }
    }
}
