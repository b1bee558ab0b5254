//! Orders: placed, and read.

use super::super::failure::Failure;
use super::super::locking::Locking;
use super::super::session::Session;
use super::super::shop::{cents, int, text};
use super::carts::{self, Line};
use super::customers::{self, Address};
use crate::database::Row;
use crate::money::{Cents, Totals};

/// How an order is paid and shipped.
#[derive(Clone, Debug)]
pub(in super::super) struct Payment {
    pub(in super::super) card_type: String,
    pub(in super::super) card_number: String,
    pub(in super::super) card_name: String,
    /// `YYYY-MM-DD`, and such a day exists.
    pub(in super::super) card_expiry: String,
    pub(in super::super) shipping: String,
    /// If it isn't to go where the customer lives.
    pub(in super::super) address: Option<Address>,
}

/// An order that has just been placed.
#[derive(Clone, Debug)]
pub(in super::super) struct Placed {
    pub(in super::super) id: i32,
    pub(in super::super) discount: i32,
    pub(in super::super) lines: Vec<Line>,
    pub(in super::super) totals: Totals,
}

/// An order as it is shown later.
#[derive(Clone, Debug)]
pub(in super::super) struct Shown {
    pub(in super::super) id: i32,
    pub(in super::super) placed: String,
    pub(in super::super) sub_total: Cents,
    pub(in super::super) tax: Cents,
    pub(in super::super) total: Cents,
    pub(in super::super) shipping: String,
    pub(in super::super) ships: String,
    pub(in super::super) status: String,
    pub(in super::super) customer: String,
    pub(in super::super) card_type: String,
    pub(in super::super) bill: Vec<String>,
    pub(in super::super) ship: Vec<String>,
    pub(in super::super) lines: Vec<ShownLine>,
}

/// A line of an order as it is shown later.
#[derive(Clone, Debug)]
pub(in super::super) struct ShownLine {
    pub(in super::super) item: i32,
    pub(in super::super) title: String,
    pub(in super::super) quantity: i32,
    pub(in super::super) price: Cents,
    pub(in super::super) discount: i32,
}

/// Takes copies from the stock; below 10, as often 21 more are bought as are needed (TPC-W buys them once,
/// since nobody there orders more than the stock).
const TAKE: &str =
    "UPDATE item SET i_stock = i_stock - $1 + 21 * GREATEST(0, (30 - (i_stock - $1)) / 21) WHERE i_id = $2";

/// Places the order of what is in a cart, for a customer (the servlets' `doBuyConfirm`).
///
/// Whatever is locked, an order is placed for exactly what is taken out of the cart: a request that finds
/// other lines there at the end than at the beginning has collided with another one, and begins anew.
pub(in super::super) async fn place(
    db: &Session,
    cart: i32,
    customer: i32,
    payment: &Payment,
) -> Result<Placed, Failure> {
    let by_rows = db.manner.locking == Locking::Rows;
    if by_rows {
        carts::lock(db, cart).await?;
    }
    let row =
        db.row("SELECT (c_discount * 100)::int FROM customer WHERE c_id = $1", &[int(&customer)]).await?;
    let discount: i32 = row.ok_or_else(who)?.try_get(0)?;
    if by_rows {
        let sql = "SELECT i_id FROM item WHERE i_id IN (SELECT scl_i_id FROM shopping_cart_line WHERE scl_sc_id = $1) \
            ORDER BY i_id FOR UPDATE";
        db.rows(sql, &[int(&cart)]).await?;
    }
    let lines = carts::lines(db, cart).await?;
    if lines.is_empty() {
        return Err(Failure::EmptyCart);
    }
    let row = db.row("SELECT c_addr_id FROM customer WHERE c_id = $1", &[int(&customer)]).await?;
    let bill: i32 = row.ok_or_else(who)?.try_get(0)?;
    let ship = match &payment.address {
        Some(address) => customers::enter_address(db, address).await?,
        None => bill,
    };
    let totals = Totals::of(lines.iter().map(|line| (line.price, line.quantity)), discount);
    let order = enter(db, customer, &totals, payment, (bill, ship)).await?;
    for (index, line) in lines.iter().enumerate() {
        enter_line(db, order, index as i32 + 1, line, discount).await?;
    }
    pay(db, order, ship, totals.total, payment).await?;
    let sql = "DELETE FROM shopping_cart_line WHERE scl_sc_id = $1 RETURNING scl_i_id, scl_qty";
    let mut taken = Vec::new();
    for row in db.rows(sql, &[int(&cart)]).await? {
        taken.push((row.try_get::<i32>(0)?, row.try_get::<i32>(1)?));
    }
    taken.sort_unstable();
    if !taken.iter().copied().eq(lines.iter().map(|line| (line.item, line.quantity))) {
        return Err(Failure::Collision("the cart has changed since it was read".to_owned()));
    }
    Ok(Placed { id: order, discount, lines, totals })
}

fn who() -> Failure {
    Failure::Nonsense("We don't know who you are: please begin at the checkout.".to_owned())
}

/// The order itself.
async fn enter(
    db: &Session,
    customer: i32,
    totals: &Totals,
    payment: &Payment,
    (bill, ship): (i32, i32),
) -> Result<i32, Failure> {
    if db.manner.counts_orders {
        // The servlets number orders so; here the number is of no use, but its work is theirs.
        db.rows("SELECT count(o_id) FROM orders", &[]).await?;
    }
    let days = rand::random_range(0..=6);
    let sql = "INSERT INTO orders (o_id, o_c_id, o_date, o_sub_total, o_tax, o_total, o_ship_type, o_ship_date, \
        o_bill_addr_id, o_ship_addr_id, o_status) VALUES (nextval('order_ids'), $1, CURRENT_TIMESTAMP, $2 * 0.01, \
        $3 * 0.01, $4 * 0.01, $5, CURRENT_TIMESTAMP + $6 * interval '1 day', $7, $8, 'PENDING') RETURNING o_id";
    let Totals { sub_total, tax, total, .. } = totals;
    db.number(
        sql,
        &[
            int(&customer),
            cents(&sub_total.0),
            cents(&tax.0),
            cents(&total.0),
            text(&payment.shipping.as_str()),
            int(&days),
            int(&bill),
            int(&ship),
        ],
    )
    .await
}

/// One line of an order, taken from the stock.
async fn enter_line(
    db: &Session,
    order: i32,
    number: i32,
    line: &Line,
    discount: i32,
) -> Result<(), Failure> {
    let sql = "INSERT INTO order_line (ol_id, ol_o_id, ol_i_id, ol_qty, ol_discount, ol_comments, ol_cost) \
        VALUES ($1, $2, $3, $4, $5 * 0.01, '', $6 * 0.01)";
    let Line { item, quantity, price, .. } = line;
    db.execute(sql, &[int(&number), int(&order), int(item), int(quantity), int(&discount), cents(&price.0)])
        .await?;
    // The servlets compute the new stock from this one, and lose updates; here the update reads again.
    db.number("SELECT i_stock FROM item WHERE i_id = $1", &[int(item)]).await?;
    db.execute(TAKE, &[int(quantity), int(item)]).await?;
    Ok(())
}

/// The payment (`enterCCXact`).
async fn pay(db: &Session, order: i32, ship: i32, total: Cents, payment: &Payment) -> Result<(), Failure> {
    let sql = "INSERT INTO cc_xacts (cx_o_id, cx_type, cx_num, cx_name, cx_expire, cx_xact_amt, cx_xact_date, cx_co_id) \
        VALUES ($1, $2, $3, $4, $5::text::date, $6 * 0.01, CURRENT_TIMESTAMP, (SELECT addr_co_id FROM address WHERE addr_id = $7))";
    db.execute(
        sql,
        &[
            int(&order),
            text(&payment.card_type.as_str()),
            text(&payment.card_number.as_str()),
            text(&payment.card_name.as_str()),
            text(&payment.card_expiry.as_str()),
            cents(&total.0),
            int(&ship),
        ],
    )
    .await?;
    Ok(())
}

/// The last order of a customer, if it has one (`GetMostRecentOrder`).
pub(in super::super) async fn last(db: &Session, user_name: &str) -> Result<Option<Shown>, Failure> {
    let sql = "SELECT o_id FROM customer, orders WHERE c_id = o_c_id AND c_uname = $1 ORDER BY o_date DESC, o_id DESC LIMIT 1";
    let Some(row) = db.row(sql, &[text(&user_name)]).await? else { return Ok(None) };
    let id: i32 = row.try_get(0)?;
    let sql = "SELECT o_id, o_date::date::text, (o_sub_total * 100)::bigint, (o_tax * 100)::bigint, (o_total * 100)::bigint, \
        o_ship_type, o_ship_date::date::text, o_status, c_fname, c_lname, cx_type, \
        bill.addr_street1, bill.addr_street2, bill.addr_city, bill.addr_state, bill.addr_zip, bill_co.co_name, \
        ship.addr_street1, ship.addr_street2, ship.addr_city, ship.addr_state, ship.addr_zip, ship_co.co_name \
        FROM customer, orders, cc_xacts, address AS bill, country AS bill_co, address AS ship, country AS ship_co \
        WHERE o_id = $1 AND cx_o_id = o_id AND c_id = o_c_id AND o_bill_addr_id = bill.addr_id AND \
        bill.addr_co_id = bill_co.co_id AND o_ship_addr_id = ship.addr_id AND ship.addr_co_id = ship_co.co_id";
    let Some(row) = db.row(sql, &[int(&id)]).await? else { return Ok(None) };
    let sql = "SELECT ol_i_id, i_title, ol_qty, (ol_cost * 100)::bigint, (ol_discount * 100)::int FROM order_line, item \
        WHERE ol_o_id = $1 AND ol_i_id = i_id ORDER BY ol_id";
    let lines = db.rows(sql, &[int(&id)]).await?;
    let line = |row: &Row| {
        Ok(ShownLine {
            item: row.try_get(0)?,
            title: row.try_get(1)?,
            quantity: row.try_get(2)?,
            price: Cents(row.try_get(3)?),
            discount: row.try_get(4)?,
        })
    };
    Ok(Some(shown(&row, lines.iter().map(line).collect::<Result<_, Failure>>()?)?))
}

fn shown(row: &Row, lines: Vec<ShownLine>) -> Result<Shown, Failure> {
    let address = |first: usize| -> Result<Vec<String>, Failure> {
        (first..first + 6).map(|column| Ok(row.try_get(column)?)).collect()
    };
    let (first_name, last_name): (String, String) = (row.try_get(8)?, row.try_get(9)?);
    Ok(Shown {
        id: row.try_get(0)?,
        placed: row.try_get(1)?,
        sub_total: Cents(row.try_get(2)?),
        tax: Cents(row.try_get(3)?),
        total: Cents(row.try_get(4)?),
        shipping: row.try_get(5)?,
        ships: row.try_get(6)?,
        status: row.try_get(7)?,
        customer: format!("{first_name} {last_name}"),
        card_type: row.try_get(10)?,
        bill: address(11)?,
        ship: address(17)?,
        lines,
    })
}
