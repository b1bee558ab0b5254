//! Pages to browse: the first page, a subject's newest and best sold books, and one book.

use std::sync::Arc;

use axum::extract::{Path, State};
use maud::{Markup, html};

use super::super::failure::Failure;
use super::super::layout::{self, spoken};
use super::super::locking::Tables;
use super::super::session::Session;
use super::super::shop::{Shop, Work};
use super::super::store::books::{self, Book, Listed, Promotion};
use super::super::store::customers;
use super::super::visitor::{Fields, Page, Visitor};
use crate::interaction::Interaction;
use crate::names::SUBJECTS;
use crate::schema::Table;

/// The parameters of the first page.
struct Home {
    customer: Option<i32>,
}

impl Work for Home {
    type Answer = (Option<(String, String)>, Vec<Promotion>);
    const INTERACTION: Interaction = Interaction::Home;
    const TABLES: Tables = Tables::read(&[Table::Customer, Table::Item]);

    async fn perform(&self, db: &Session, shop: &Shop) -> Result<Self::Answer, Failure> {
        let name = match self.customer {
            Some(customer) => customers::name(db, customer).await?,
            None => None,
        };
        Ok((name, books::promotions(db, shop).await?))
    }
}

/// `GET /`, perhaps with `customer`: the visitor's customer from now on.
pub(in super::super) async fn home(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Page, Failure> {
    let named = fields.get("customer").and_then(|id| id.parse().ok()).filter(|id| *id > 0);
    let customer = named.or(visitor.customer);
    let (name, promotions) = shop.perform(Home { customer }).await?;
    let content = html! {
        section.hero {
            @match &name {
                Some((first, last)) => h1 { "Welcome back, " (first) " " (last) },
                None => h1 { "Books that don't exist, well kept" },
            }
            p { "Choose a subject, or " a href="/search" { "search by title, author or subject" } "." }
        }
        (layout::promotions(&promotions))
        section aria-labelledby="subjects" {
            h2 #subjects { "Subjects" }
            ul.subject-grid {
                @for subject in SUBJECTS {
                    li {
                        strong { (spoken(subject)) }
                        a href={ "/new?subject=" (subject) } { "New" span.hidden { " in " (spoken(subject)) } }
                        a href={ "/best?subject=" (subject) } { "Best sellers" span.hidden { " in " (spoken(subject)) } }
                    }
                }
            }
        }
    };
    let page = Page::from(layout::page("Books", Interaction::Home, &visitor, &content));
    Ok(match (customer, name) {
        (Some(customer), Some(_)) if visitor.customer != Some(customer) => page.with("customer", customer),
        _ => page,
    })
}

/// The subject that an address names.
fn subject(fields: &Fields) -> Result<&'static str, Failure> {
    let name = fields.get("subject").ok_or_else(|| Failure::Nonsense("Which subject?".to_owned()))?;
    let found = SUBJECTS.iter().find(|subject| subject.eq_ignore_ascii_case(name));
    found.copied().ok_or(Failure::NotFound("subject"))
}

/// A subject's newest books.
struct New(&'static str);

impl Work for New {
    type Answer = (Vec<Promotion>, Vec<Listed>);
    const INTERACTION: Interaction = Interaction::NewProducts;
    const TABLES: Tables = Tables::read(&[Table::Author, Table::Item]);

    async fn perform(&self, db: &Session, shop: &Shop) -> Result<Self::Answer, Failure> {
        Ok((books::promotions(db, shop).await?, books::new(db, self.0).await?))
    }
}

/// `GET /new?subject=…`
pub(in super::super) async fn new(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Page, Failure> {
    let subject = subject(&fields)?;
    let (promotions, found) = shop.perform(New(subject)).await?;
    let content = list(subject, Interaction::NewProducts, &promotions, &found);
    let title = format!("New in {}", spoken(subject));
    Ok(layout::subject_page(&title, Interaction::NewProducts, &visitor, subject, &content).into())
}

/// A subject's best sold books.
struct Best(&'static str);

impl Work for Best {
    type Answer = (Vec<Promotion>, Vec<Listed>);
    const INTERACTION: Interaction = Interaction::BestSellers;
    const TABLES: Tables = Tables::read(&[Table::Author, Table::Item, Table::OrderLine, Table::Orders]);

    async fn perform(&self, db: &Session, shop: &Shop) -> Result<Self::Answer, Failure> {
        Ok((books::promotions(db, shop).await?, books::best(db, self.0).await?))
    }
}

/// `GET /best?subject=…`
pub(in super::super) async fn best(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Page, Failure> {
    let subject = subject(&fields)?;
    let (promotions, found) = shop.perform(Best(subject)).await?;
    let content = list(subject, Interaction::BestSellers, &promotions, &found);
    let title = format!("Best sellers in {}", spoken(subject));
    Ok(layout::subject_page(&title, Interaction::BestSellers, &visitor, subject, &content).into())
}

/// A subject's books, in one of three orders.
fn list(subject: &str, interaction: Interaction, promotions: &[Promotion], found: &[Listed]) -> Markup {
    let is_best = interaction == Interaction::BestSellers;
    let here = |is_here: bool| is_here.then_some("page");
    html! {
        h1 { (spoken(subject)) }
        nav.tabs aria-label="Order of the books" {
            a href={ "/new?subject=" (subject) } aria-current=[here(!is_best)] { "New" }
            a href={ "/best?subject=" (subject) } aria-current=[here(is_best)] { "Best sellers" }
            a href={ "/search/results?by=subject&q=" (subject) } { "By title" }
        }
        @if found.is_empty() {
            p.quiet { "Nothing of this subject was sold of late." }
        }
        @if is_best { (layout::ranking(found)) } @else { (layout::grid(found)) }
        (layout::promotions(promotions))
    }
}

/// One book.
struct Detail(i32);

impl Work for Detail {
    type Answer = Book;
    const INTERACTION: Interaction = Interaction::ProductDetail;
    const TABLES: Tables = Tables::read(&[Table::Author, Table::Item]);

    async fn perform(&self, db: &Session, _shop: &Shop) -> Result<Self::Answer, Failure> {
        books::book(db, self.0).await
    }
}

/// The book that an address names.
pub(super) fn book_id(id: &str) -> Result<i32, Failure> {
    id.parse().ok().filter(|id| *id > 0).ok_or(Failure::NotFound("book"))
}

/// `GET /books/{id}`
pub(in super::super) async fn book(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Page, Failure> {
    let book = shop.perform(Detail(book_id(&id)?)).await?;
    let Listed { id, title, author, price, .. } = &book.listed;
    let saving = book.list_price - *price;
    let content = html! {
        article.product {
            img.cover src={ "/images/" (book.image) } alt={ "Cover of " (title) } width="300" height="450";
            div.about {
                p.crumb { a href={ "/new?subject=" (book.subject) } { (spoken(&book.subject)) } }
                h1 { (title) }
                p.author { "by " (author) }
                p.offer {
                    span.price { "$" (price) }
                    @if saving.0 > 0 {
                        " " del { "$" (book.list_price) }
                        " " span.saving { "you save $" (saving) }
                    }
                }
                p.stock { (book.stock) " in stock" }
                form action="/cart" method="post" {
                    input type="hidden" name="add" value=(id);
                    button.button type="submit" { "Put into the cart" }
                }
                p.description { (book.description) }
                dl.facts {
                    @for (name, value) in [
                        ("Publisher", book.publisher.clone()),
                        ("Published", book.published.clone()),
                        ("Available since", book.available.clone()),
                        ("Binding", book.backing.to_lowercase().replace('-', " ")),
                        ("Pages", book.pages.to_string()),
                        ("Size", book.dimensions.clone()),
                        ("ISBN", book.isbn.clone()),
                    ] {
                        div { dt { (name) } dd { (value) } }
                    }
                }
                p.quiet { a href={ "/admin/books/" (id) } { "Change this book" } }
            }
        }
    };
    Ok(layout::subject_page(title, Interaction::ProductDetail, &visitor, &book.subject, &content).into())
}
