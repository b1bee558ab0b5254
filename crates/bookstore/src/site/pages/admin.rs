//! Changing a book: the form, and the change with what is related to the book computed anew.

use std::sync::Arc;

use axum::extract::{Path, State};
use maud::{Markup, html};

use super::super::failure::Failure;
use super::super::images::file_of;
use super::super::layout;
use super::super::locking::Tables;
use super::super::session::Session;
use super::super::shop::{Shop, Work};
use super::super::store::books::{self, Book};
use super::super::visitor::{Fields, Page, Visitor};
use super::browse::book_id;
use crate::interaction::Interaction;
use crate::money::Cents;
use crate::schema::Table;

/// The book that is to be changed.
struct Request(i32);

impl Work for Request {
    type Answer = Book;
    const INTERACTION: Interaction = Interaction::AdminRequest;
    const TABLES: Tables = Tables::read(&[Table::Author, Table::Item]);

    async fn perform(&self, db: &Session, _shop: &Shop) -> Result<Self::Answer, Failure> {
        books::book(db, self.0).await
    }
}

/// `GET /admin/books/{id}`
pub(in super::super) async fn request(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Page, Failure> {
    let book = shop.perform(Request(book_id(&id)?)).await?;
    let content = html! {
        h1 { "Change a book" }
        (head(&book))
        div.forms {
            form.card action={ "/admin/books/" (book.listed.id) "/change" } method="post" {
                div.field {
                    label for="cost" { "Price in dollars" }
                    input #cost type="text" inputmode="decimal" name="cost" value=(book.listed.price) required maxlength="10";
                }
                div.field {
                    label for="image" { "Cover" }
                    input #image type="text" name="image" value=(book.image) required maxlength="40";
                }
                div.field {
                    label for="thumbnail" { "Thumbnail" }
                    input #thumbnail type="text" name="thumbnail" value=(book.listed.thumbnail) required maxlength="40";
                }
                button.button type="submit" { "Change it" }
            }
        }
    };
    Ok(layout::page("Change a book", Interaction::AdminRequest, &visitor, &content).into())
}

fn head(book: &Book) -> Markup {
    html! {
        div.line {
            (layout::thumbnail(&book.listed.thumbnail, ""))
            div {
                a href={ "/books/" (book.listed.id) } { (book.listed.title) }
                span.quiet { (book.listed.author) }
                span { "$" (book.listed.price) " (list price $" (book.list_price) "), " (book.stock) " in stock" }
            }
        }
    }
}

/// A change.
struct Change {
    id: i32,
    price: Cents,
    image: String,
    thumbnail: String,
}

impl Work for Change {
    type Answer = Book;
    const INTERACTION: Interaction = Interaction::AdminConfirm;
    const TABLES: Tables =
        Tables { read: &[Table::Author, Table::OrderLine, Table::Orders], written: &[Table::Item] };
    const IS_WHOLE: bool = true;

    async fn perform(&self, db: &Session, _shop: &Shop) -> Result<Self::Answer, Failure> {
        let before = books::book(db, self.id).await?;
        books::change(db, self.id, self.price, &self.image, &self.thumbnail).await?;
        let mut book = before;
        book.listed.price = self.price;
        book.listed.thumbnail.clone_from(&self.thumbnail);
        Ok(book)
    }
}

/// `POST /admin/books/{id}/change`
pub(in super::super) async fn change(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    Path(id): Path<String>,
    fields: Fields,
) -> Result<Page, Failure> {
    let id = book_id(&id)?;
    let price = Cents::parse(&fields.text("cost", "Price", 10)?).filter(|price| price.0 > 0);
    let price =
        price.ok_or_else(|| Failure::Nonsense("Price: an amount such as 12.50, please.".to_owned()))?;
    let (image, thumbnail) =
        (picture(&fields, "image", "cover")?, picture(&fields, "thumbnail", "thumbnail")?);
    let book = shop.perform(Change { id, price, image, thumbnail }).await?;
    let content = html! {
        h1 { "Changed" }
        (head(&book))
        p { "What is recommended beside this book was computed anew, from what was bought together with it." }
        p.actions { a.button href={ "/books/" (id) } { "See the book" } a.button.plain href={ "/admin/books/" (id) } { "Change it again" } }
    };
    Ok(layout::page("Changed", Interaction::AdminConfirm, &visitor, &content).into())
}

/// The path of a picture: `cover/12.svg`, also with `/images/` before it, or only its number.
fn picture(fields: &Fields, name: &'static str, kind: &str) -> Result<String, Failure> {
    let value = fields.text(name, "Picture", 40)?;
    let path = value.strip_prefix("/images/").unwrap_or(&value);
    let (kind, file) = match path.split_once('/') {
        Some((kind, file)) => (kind, file.to_owned()),
        None => (kind, format!("{}.svg", path.trim_end_matches(".svg"))),
    };
    let known = file_of(kind, &file);
    let known =
        known.ok_or_else(|| Failure::Nonsense("Picture: such as cover/12.svg, please.".to_owned()))?;
    Ok(known.display().to_string())
}
