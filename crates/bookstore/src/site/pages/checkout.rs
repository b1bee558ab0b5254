//! Buying: who the customer is, the order as it would be, and the order placed.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::super::failure::Failure;
use super::super::layout;
use super::super::locking::Tables;
use super::super::session::Session;
use super::super::shop::{Shop, Work};
use super::super::store::carts::{self, Line};
use super::super::store::customers::{self, Address, Customer, NewCustomer};
use super::super::store::orders::{self, Payment, Placed};
use super::super::visitor::{Fields, Page, Visitor};
use crate::interaction::Interaction;
use crate::money::{Cents, Totals};
use crate::names::{CARD_TYPES, COUNTRIES, SHIPPING};
use crate::schema::Table;

/// The name of a customer who is known already.
struct Known(i32);

impl Work for Known {
    type Answer = Option<String>;
    const INTERACTION: Interaction = Interaction::CustomerRegistration;
    const TABLES: Tables = Tables::read(&[Table::Customer]);

    async fn perform(&self, db: &Session, _shop: &Shop) -> Result<Self::Answer, Failure> {
        customers::user_name(db, self.0).await
    }
}

/// `GET /register`: needs the database only for a customer who is known.
pub(in super::super) async fn register(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
) -> Result<Page, Failure> {
    let known = match visitor.customer {
        Some(customer) => shop.perform(Known(customer)).await?,
        None => None,
    };
    let content = html! {
        h1 { "Who are you?" }
        div.forms {
            form.card action="/checkout" method="post" {
                h2 { "I have been here before" }
                input type="hidden" name="returning" value="yes";
                (field("uname", "User name", known.as_deref().unwrap_or_default(), 20, "username"))
                div.field {
                    label for="password" { "Password" }
                    input #password type="password" name="password" required maxlength="20" autocomplete="current-password";
                }
                button.button type="submit" { "Continue" }
            }
            form.card action="/checkout" method="post" {
                h2 { "I am new" }
                input type="hidden" name="returning" value="no";
                div.pair {
                    (field("first_name", "First name", "", 17, "given-name"))
                    (field("last_name", "Last name", "", 17, "family-name"))
                }
                (address_fields())
                div.pair {
                    (field("phone", "Phone", "", 18, "tel"))
                    (field("email", "Email", "", 50, "email"))
                }
                div.field {
                    label for="birth_date" { "Date of birth" }
                    input #birth_date type="date" name="birth_date" required autocomplete="bday";
                }
                div.field {
                    label for="data" { "What you like to read" }
                    textarea #data name="data" rows="2" maxlength="500" {}
                }
                button.button type="submit" { "Register" }
            }
        }
    };
    Ok(layout::page("Who are you?", Interaction::CustomerRegistration, &visitor, &content).into())
}

fn field(name: &str, label: &str, value: &str, max: u32, autocomplete: &str) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) }
            input #(name) type="text" name=(name) value=(value) required maxlength=(max) autocomplete=(autocomplete);
        }
    }
}

/// The fields of an address.
fn address_fields() -> Markup {
    html! {
        (field("street1", "Street", "", 40, "address-line1"))
        div.field {
            label for="street2" { "Street, second line" }
            input #street2 type="text" name="street2" maxlength="40" autocomplete="address-line2";
        }
        div.pair {
            (field("city", "City", "", 30, "address-level2"))
            (field("state", "State", "", 20, "address-level1"))
        }
        div.pair {
            (field("zip", "Postal code", "", 10, "postal-code"))
            div.field {
                label for="country" { "Country" }
                select #country name="country" autocomplete="country-name" {
                    @for country in COUNTRIES { option { (country) } }
                }
            }
        }
    }
}

/// An address that was filled in.
fn address(fields: &Fields) -> Result<Address, Failure> {
    Ok(Address {
        street1: fields.text("street1", "Street", 40)?,
        street2: fields.optional("street2", "Street, second line", 40)?,
        city: fields.text("city", "City", 30)?,
        state: fields.optional("state", "State", 20)?,
        zip: fields.text("zip", "Postal code", 10)?,
        country: fields.one_of("country", "Country", &COUNTRIES)?.to_owned(),
    })
}

/// A customer, who says who it is, and wants to see the order.
struct Request {
    who: Who,
    cart: i32,
}

enum Who {
    Returning { user_name: String, password: String },
    New(Box<NewCustomer>, i32),
}

impl Work for Request {
    type Answer = (Customer, Vec<Line>);
    const INTERACTION: Interaction = Interaction::BuyRequest;
    const TABLES: Tables = Tables {
        read: &[Table::Country, Table::Item, Table::ShoppingCartLine],
        written: &[Table::Address, Table::Customer],
    };

    async fn perform(&self, db: &Session, _shop: &Shop) -> Result<Self::Answer, Failure> {
        let customer = match &self.who {
            Who::Returning { user_name, password } => customers::sign_in(db, user_name, password).await?,
            Who::New(new, discount) => customers::register(db, new, *discount).await?,
        };
        let lines = carts::lines(db, self.cart).await?;
        if lines.is_empty() { Err(Failure::EmptyCart) } else { Ok((customer, lines)) }
    }
}

/// `POST /checkout`
pub(in super::super) async fn request(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Page, Failure> {
    let who = match fields.one_of("returning", "Returning", &["yes", "no"])? {
        "yes" => Who::Returning {
            user_name: fields.text("uname", "User name", 20)?,
            password: fields.text("password", "Password", 20)?,
        },
        _ => Who::New(Box::new(new_customer(&fields)?), rand::random_range(0..=50)),
    };
    let cart = visitor.cart.ok_or(Failure::EmptyCart)?;
    let (customer, lines) = shop.perform(Request { who, cart }).await?;
    let totals = Totals::of(lines.iter().map(|line| (line.price, line.quantity)), customer.discount);
    let content = html! {
        h1 { "Your order" }
        div.forms {
            section.card.wide {
                h2 { "Books" }
                div.scroll { (summary(&lines, customer.discount, &totals)) }
            }
            section.card {
                h2 { "For" }
                p { strong { (customer.first_name) " " (customer.last_name) } br; (customer.email) br; (customer.phone) }
                (address_lines(&customer.address))
                p.quiet { "Your user name is " strong { (customer.user_name) } ", and your password the same in lower case." }
            }
            form.card action="/checkout/confirm" method="post" { (payment_fields(&customer)) }
        }
    };
    Ok(Page::from(layout::page("Your order", Interaction::BuyRequest, &visitor, &content))
        .with("customer", customer.id))
}

fn payment_fields(customer: &Customer) -> Markup {
    let name = format!("{} {}", customer.first_name, customer.last_name);
    html! {
        h2 { "Payment" }
        div.pair {
            div.field {
                label for="card_type" { "Card" }
                select #card_type name="card_type" { @for card in CARD_TYPES { option { (card) } } }
            }
            (field("card_number", "Card number", "", 16, "off"))
        }
        (field("card_name", "Name on the card", &name, 36, "off"))
        div.pair {
            div.field {
                label for="card_expiry" { "Expires" }
                input #card_expiry type="date" name="card_expiry" required;
            }
            div.field {
                label for="shipping" { "Shipped by" }
                select #shipping name="shipping" { @for way in SHIPPING { option { (way) } } }
            }
        }
        details {
            summary { "Ship it to another address" }
            div.optional {
                @for (name, label, max) in [("street1", "Street", 40), ("street2", "Street, second line", 40), ("city", "City", 30),
                    ("state", "State", 20), ("zip", "Postal code", 10)] {
                    div.field {
                        label for=(name) { (label) }
                        input #(name) type="text" name=(name) maxlength=(max);
                    }
                }
                div.field {
                    label for="country" { "Country" }
                    select #country name="country" { @for country in COUNTRIES { option { (country) } } }
                }
            }
        }
        button.button type="submit" { "Buy" }
    }
}

fn new_customer(fields: &Fields) -> Result<NewCustomer, Failure> {
    Ok(NewCustomer {
        first_name: fields.text("first_name", "First name", 17)?,
        last_name: fields.text("last_name", "Last name", 17)?,
        address: address(fields)?,
        phone: fields.text("phone", "Phone", 18)?,
        email: fields.text("email", "Email", 50)?,
        birth_date: fields.day("birth_date", "Date of birth")?,
        data: fields.optional("data", "What you like to read", 500)?,
    })
}

/// The lines of an order with what they come to.
pub(super) fn summary(lines: &[Line], discount: i32, totals: &Totals) -> Markup {
    html! {
        table.lines {
            thead { tr { th scope="col" { "Book" } th.number scope="col" { "Copies" } th.number scope="col" { "Price" } th.number scope="col" { "Sum" } } }
            tbody {
                @for line in lines {
                    tr data-line={ (line.item) ":" (line.quantity) } {
                        td { a href={ "/books/" (line.item) } { (line.title) } }
                        td.number { (line.quantity) }
                        td.number { "$" (line.price) }
                        td.number { "$" (line.price.times(line.quantity)) }
                    }
                }
            }
            (sums(discount, totals.sub_total, totals.tax, totals.shipping, totals.total))
        }
    }
}

/// What an order comes to, as the foot of a table of four columns.
pub(super) fn sums(discount: i32, sub_total: Cents, tax: Cents, shipping: Cents, total: Cents) -> Markup {
    let less = format!("Books, less your {discount} %");
    let name = if discount > 0 { less.as_str() } else { "Books" };
    html! {
        tfoot {
            @for (name, amount) in [(name, sub_total), ("Tax", tax), ("Shipping", shipping)] {
                tr { th scope="row" colspan="3" { (name) } td.number { "$" (amount) } }
            }
            tr.total { th scope="row" colspan="3" { "Total" } td.number { "$" (total) } }
        }
    }
}

fn address_lines(address: &Address) -> Markup {
    let Address { street1, street2, city, state, zip, country } = address;
    html! {
        address {
            (street1) br;
            @if !street2.is_empty() { (street2) br; }
            (city) @if !state.is_empty() { ", " (state) } " " (zip) br;
            (country)
        }
    }
}

/// An order that is to be placed.
struct Confirm {
    customer: i32,
    cart: i32,
    payment: Payment,
}

impl Work for Confirm {
    type Answer = Placed;
    const INTERACTION: Interaction = Interaction::BuyConfirm;
    const TABLES: Tables = Tables {
        read: &[Table::Country, Table::Customer],
        written: &[
            Table::Address,
            Table::CcXacts,
            Table::Item,
            Table::OrderLine,
            Table::Orders,
            Table::ShoppingCart,
            Table::ShoppingCartLine,
        ],
    };
    const IS_WHOLE: bool = true;

    async fn perform(&self, db: &Session, _shop: &Shop) -> Result<Self::Answer, Failure> {
        orders::place(db, self.cart, self.customer, &self.payment).await
    }
}

/// `POST /checkout/confirm`
pub(in super::super) async fn confirm(
    State(shop): State<Arc<Shop>>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Page, Failure> {
    let other = fields.get("street1").is_some();
    let card_number = fields.text("card_number", "Card number", 16)?;
    if !card_number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Failure::Nonsense("Card number: up to 16 digits, please.".to_owned()));
    }
    let payment = Payment {
        card_type: fields.one_of("card_type", "Card", &CARD_TYPES)?.to_owned(),
        card_number,
        card_name: fields.text("card_name", "Name on the card", 36)?,
        card_expiry: fields.day("card_expiry", "Expires")?,
        shipping: fields.one_of("shipping", "Shipped by", &SHIPPING)?.to_owned(),
        address: if other { Some(address(&fields)?) } else { None },
    };
    let customer = visitor.customer.ok_or_else(|| {
        Failure::Nonsense("We don't know who you are: please begin at the checkout.".to_owned())
    })?;
    let cart = visitor.cart.ok_or(Failure::EmptyCart)?;
    let Placed { id, discount, lines, totals } = shop.perform(Confirm { customer, cart, payment }).await?;
    let content = html! {
        section data-order=(id) data-total=(totals.total) {
            h1 { "Thank you" }
            p { "Your order has the number " strong { (id) } ". We'll let you know when it is on its way." }
            div.card.wide { div.scroll { (summary(&lines, discount, &totals)) } }
            p.actions { a.button href="/" { "Look for more books" } a.button.plain href="/orders" { "See your last order" } }
        }
    };
    let seen = Visitor { copies: 0, ..visitor };
    Ok(Page::from(layout::page("Thank you", Interaction::BuyConfirm, &seen, &content)).with("copies", 0))
}
