//! Looking at one's last order.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::super::failure::Failure;
use super::super::layout;
use super::super::locking::Tables;
use super::super::session::Session;
use super::super::shop::{Shop, Work};
use super::super::store::customers;
use super::super::store::orders::{self, Shown};
use super::super::visitor::{Fields, Page, Visitor};
use super::checkout;
use crate::interaction::Interaction;
use crate::schema::Table;

/// `GET /orders`: a form, for which nobody asks the database.
pub(in super::super) async fn inquiry(visitor: Visitor) -> Page {
    let content = html! {
        h1 { "Your last order" }
        div.forms {
            form.card action="/orders/last" method="post" {
                div.field {
                    label for="uname" { "User name" }
                    input #uname type="text" name="uname" required maxlength="20" autocomplete="username";
                }
                div.field {
                    label for="password" { "Password" }
                    input #password type="password" name="password" required maxlength="20" autocomplete="current-password";
                }
                button.button type="submit" { "Show it" }
            }
        }
    };
    layout::page("Your last order", Interaction::OrderInquiry, &visitor, &content).into()
}

/// Whose last order is to be shown.
struct Display {
    user_name: String,
    password: String,
}

impl Work for Display {
    type Answer = Option<Shown>;
    const INTERACTION: Interaction = Interaction::OrderDisplay;
    const TABLES: Tables = Tables::read(&[
        Table::Address,
        Table::CcXacts,
        Table::Country,
        Table::Customer,
        Table::Item,
        Table::OrderLine,
        Table::Orders,
    ]);

    async fn perform(&self, db: &Session, _shop: &Shop) -> Result<Self::Answer, Failure> {
        customers::check_password(db, &self.user_name, &self.password).await?;
        orders::last(db, &self.user_name).await
    }
}

/// `POST /orders/last`
pub(in super::super) async fn display(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Page, Failure> {
    let user_name = fields.text("uname", "User name", 20)?;
    let password = fields.text("password", "Password", 20)?;
    let found = shop.perform(Display { user_name, password }).await?;
    let content = match &found {
        Some(order) => shown(order),
        None => html! {
            section.notice { h1 { "No order yet" } p { "You haven't bought anything here so far." } p { a.button href="/" { "Look for books" } } }
        },
    };
    Ok(layout::page("Your last order", Interaction::OrderDisplay, &visitor, &content).into())
}

fn shown(order: &Shown) -> Markup {
    let Shown { sub_total, tax, total, .. } = *order;
    let discount = order.lines.first().map_or(0, |line| line.discount);
    html! {
        section data-order=(order.id) data-total=(total) {
            h1 { "Order " (order.id) }
            dl.facts {
                @for (name, value) in [
                    ("Placed", &order.placed),
                    ("Status", &order.status.to_lowercase()),
                    ("Ships", &order.ships),
                    ("Shipped by", &order.shipping),
                    ("Paid with", &order.card_type),
                    ("Customer", &order.customer),
                ] {
                    div { dt { (name) } dd { (value) } }
                }
            }
            div.forms {
                section.card.wide {
                    h2 { "Books" }
                    div.scroll {
                        table.lines {
                            thead { tr { th scope="col" { "Book" } th.number scope="col" { "Copies" } th.number scope="col" { "Price" } th.number scope="col" { "Sum" } } }
                            tbody {
                                @for line in &order.lines {
                                    tr data-line={ (line.item) ":" (line.quantity) } {
                                        td { a href={ "/books/" (line.item) } { (line.title) } }
                                        td.number { (line.quantity) }
                                        td.number { "$" (line.price) }
                                        td.number { "$" (line.price.times(line.quantity)) }
                                    }
                                }
                            }
                            (checkout::sums(discount, sub_total, tax, total - sub_total - tax, total))
                        }
                    }
                }
                section.card { h2 { "Billed to" } (address(&order.bill)) }
                section.card { h2 { "Shipped to" } (address(&order.ship)) }
            }
        }
    }
}

fn address(lines: &[String]) -> Markup {
    html! { address { @for line in lines.iter().filter(|line| !line.is_empty()) { (line) br; } } }
}
