//! Searching: the form and what was found.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::super::failure::Failure;
use super::super::layout::{self, spoken};
use super::super::locking::Tables;
use super::super::session::Session;
use super::super::shop::{Shop, Work};
use super::super::store::books::{self, By, LIST, Listed, Promotion};
use super::super::visitor::{Fields, Page, Visitor};
use crate::interaction::Interaction;
use crate::names::SUBJECTS;
use crate::schema::Table;

/// What the form shows beside itself.
struct Request;

impl Work for Request {
    type Answer = Vec<Promotion>;
    const INTERACTION: Interaction = Interaction::SearchRequest;
    const TABLES: Tables = Tables::read(&[Table::Item]);

    async fn perform(&self, db: &Session, shop: &Shop) -> Result<Self::Answer, Failure> {
        books::promotions(db, shop).await
    }
}

/// `GET /search`
pub(in super::super) async fn request(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
) -> Result<Page, Failure> {
    let promotions = shop.perform(Request).await?;
    let content = html! {
        h1 { "Search" }
        div.forms { (text_form("title", "Title", "")) (text_form("author", "Author's last name", "")) (subject_form()) }
        (layout::promotions(&promotions))
    };
    Ok(layout::page("Search", Interaction::SearchRequest, &visitor, &content).into())
}

fn text_form(by: &str, label: &str, value: &str) -> Markup {
    html! {
        form.card action="/search/results" method="get" {
            input type="hidden" name="by" value=(by);
            label for={ "q-" (by) } { (label) " begins with" }
            div.row {
                input #{ "q-" (by) } type="search" name="q" value=(value) required maxlength="60" autocomplete="off";
                button.button type="submit" { "Search" }
            }
        }
    }
}

fn subject_form() -> Markup {
    html! {
        form.card action="/search/results" method="get" {
            input type="hidden" name="by" value="subject";
            label for="q-subject" { "Subject" }
            div.row {
                select #q-subject name="q" {
                    @for subject in SUBJECTS { option value=(subject) { (spoken(subject)) } }
                }
                button.button type="submit" { "Search" }
            }
        }
    }
}

/// A search.
struct Results {
    by: By,
    query: String,
}

impl Work for Results {
    type Answer = (Vec<Promotion>, Vec<Listed>);
    const INTERACTION: Interaction = Interaction::SearchResults;
    const TABLES: Tables = Tables::read(&[Table::Author, Table::Item]);

    async fn perform(&self, db: &Session, shop: &Shop) -> Result<Self::Answer, Failure> {
        Ok((books::promotions(db, shop).await?, books::search(db, self.by, &self.query).await?))
    }
}

/// `GET /search/results?by=…&q=…`
pub(in super::super) async fn results(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Page, Failure> {
    let word = fields.one_of("by", "Search by", &["author", "title", "subject"])?;
    let query = fields.text("q", "Search for", 60)?;
    let (by, asked, query) = match word {
        "author" => (By::Author, format!("Authors whose last name begins with “{query}”"), query),
        "title" => (By::Title, format!("Titles that begin with “{query}”"), query),
        _ => {
            let subject = fields.one_of("q", "Subject", &SUBJECTS)?;
            (By::Subject, spoken(subject), subject.to_owned())
        }
    };
    let work = Results { by, query: query.clone() };
    let (promotions, found) = shop.perform(work).await?;
    let content = html! {
        h1 { (asked) }
        @match found.len() {
            0 => p.quiet { "Nothing was found." },
            LIST => p.quiet { "The first " (LIST) " books." },
            1 => p.quiet { "One book." },
            count => p.quiet { (count) " books." },
        }
        (layout::grid(&found))
        div.forms {
            @match by {
                By::Author => (text_form("author", "Author's last name", &query)),
                By::Title => (text_form("title", "Title", &query)),
                By::Subject => (subject_form()),
            }
        }
        (layout::promotions(&promotions))
    };
    Ok(layout::page("Search results", Interaction::SearchResults, &visitor, &content).into())
}
