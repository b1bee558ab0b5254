//! The cart.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::super::failure::Failure;
use super::super::layout;
use super::super::locking::Tables;
use super::super::session::Session;
use super::super::shop::{Shop, Work};
use super::super::store::books::{self, Promotion};
use super::super::store::carts::{self, Line, MAX_COPIES, MAX_LINES};
use super::super::visitor::{Fields, Page, Visitor};
use crate::interaction::Interaction;
use crate::money::Cents;
use crate::schema::Table;

/// A change of a cart, or only a look at it.
struct Change {
    cart: Option<i32>,
    add: Option<i32>,
    /// Books and how many copies of each there are to be.
    quantities: Vec<(i32, i32)>,
}

impl Work for Change {
    type Answer = (i32, Vec<Line>, Vec<Promotion>);
    const INTERACTION: Interaction = Interaction::ShoppingCart;
    const TABLES: Tables =
        Tables { read: &[Table::Item], written: &[Table::ShoppingCart, Table::ShoppingCartLine] };
    const IS_WHOLE: bool = true;

    async fn perform(&self, db: &Session, shop: &Shop) -> Result<Self::Answer, Failure> {
        let cart = carts::open(db, self.cart).await?;
        if let Some(item) = self.add {
            carts::add(db, cart, item).await?;
        }
        for (item, quantity) in &self.quantities {
            carts::set(db, cart, *item, *quantity).await?;
        }
        carts::fill_if_empty(db, shop, cart).await?;
        Ok((cart, carts::lines(db, cart).await?, books::promotions(db, shop).await?))
    }
}

/// `GET /cart` and `POST /cart` with `add` and `quantity.<book>`
pub(in super::super) async fn cart(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Page, Failure> {
    let (cart, lines, promotions) = shop.perform(change(&visitor, &fields)?).await?;
    let copies: i32 = lines.iter().map(|line| line.quantity).sum();
    let sum: Cents = lines.iter().map(|line| line.price.times(line.quantity)).sum();
    let content = html! {
        h1 { "Your cart" }
        form action="/cart" method="post" {
            div.scroll { (table(&lines)) }
            p.sum { (copies) @if copies == 1 { " book" } @else { " books" } ", $" (sum) " before discount, tax and shipping" }
            div.actions {
                button.button.plain type="submit" { "Save the quantities" }
                a.button href="/register" { "Check out" }
            }
        }
        p.quiet { "A cart is never empty here: if nobody else does, we put a book into it." }
        (layout::promotions(&promotions))
    };
    let seen = Visitor { copies, ..visitor };
    let page = Page::from(layout::page("Your cart", Interaction::ShoppingCart, &seen, &content))
        .with("copies", copies);
    Ok(if visitor.cart == Some(cart) { page } else { page.with("cart", cart) })
}

fn table(lines: &[Line]) -> Markup {
    html! {
        table.lines {
            thead { tr { th scope="col" { "Book" } th scope="col" { "Copies" } th.number scope="col" { "Price" } th.number scope="col" { "Sum" } } }
            tbody {
                @for line in lines {
                    tr data-line={ (line.item) ":" (line.quantity) } {
                        td {
                            div.line {
                                (layout::thumbnail(&line.thumbnail, ""))
                                div {
                                    a href={ "/books/" (line.item) } { (line.title) }
                                    span.quiet { (line.backing.to_lowercase().replace('-', " ")) }
                                }
                            }
                        }
                        td {
                            label.hidden for={ "quantity-" (line.item) } { "Copies of " (line.title) }
                            input.quantity #{ "quantity-" (line.item) } name={ "quantity." (line.item) } type="number"
                                min="0" max=(MAX_COPIES) value=(line.quantity) inputmode="numeric";
                        }
                        td.number {
                            "$" (line.price)
                            @if line.list_price > line.price { br; del { "$" (line.list_price) } }
                        }
                        td.number { "$" (line.price.times(line.quantity)) }
                    }
                }
            }
        }
    }
}

/// What a form wants of the cart.
fn change(visitor: &Visitor, fields: &Fields) -> Result<Change, Failure> {
    let nonsense = |why: &str| Failure::Nonsense(why.to_owned());
    let add = match fields.get("add") {
        None => None,
        Some(item) => Some(super::browse::book_id(item)?),
    };
    let mut quantities = Vec::new();
    for (name, value) in fields.iter() {
        let Some(item) = name.strip_prefix("quantity.") else { continue };
        let item: i32 = item.parse().map_err(|_| nonsense("A cart holds books."))?;
        let quantity: i32 = value.parse().map_err(|_| nonsense("How many copies? A number, please."))?;
        if !(0..=MAX_COPIES).contains(&quantity) {
            return Err(Failure::Nonsense(format!(
                "Between 0 and {MAX_COPIES} copies of each book, please."
            )));
        }
        quantities.push((item, quantity));
    }
    if quantities.len() > MAX_LINES {
        return Err(nonsense("So many books don't fit into a cart."));
    }
    // Everybody changes lines in the same order.
    quantities.sort_unstable();
    Ok(Change { cart: visitor.cart, add, quantities })
}
