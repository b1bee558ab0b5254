//! Carts: made, changed and read.

use super::super::failure::Failure;
use super::super::locking::Locking;
use super::super::session::Session;
use super::super::shop::{Shop, int};
use crate::database::Row;
use crate::money::Cents;

/// The most copies of one book in a cart.
pub(in super::super) const MAX_COPIES: i32 = 99;
/// The most different books in a cart.
pub(in super::super) const MAX_LINES: usize = 100;

/// A line of a cart.
#[derive(Clone, Debug)]
pub(in super::super) struct Line {
    pub(in super::super) item: i32,
    pub(in super::super) quantity: i32,
    pub(in super::super) title: String,
    pub(in super::super) price: Cents,
    pub(in super::super) list_price: Cents,
    pub(in super::super) backing: String,
    pub(in super::super) thumbnail: String,
}

/// The cart of this id, if it exists and may be changed now; else a new one.
pub(in super::super) async fn open(db: &Session, cart: Option<i32>) -> Result<i32, Failure> {
    if let Some(cart) = cart {
        if db.manner.locking == Locking::Rows {
            lock(db, cart).await?;
        }
        let touched = "UPDATE shopping_cart SET sc_time = CURRENT_TIMESTAMP WHERE sc_id = $1";
        if db.execute(touched, &[int(&cart)]).await? == 1 {
            return Ok(cart);
        }
    }
    let made = "INSERT INTO shopping_cart (sc_id, sc_time) VALUES (nextval('cart_ids'), CURRENT_TIMESTAMP) RETURNING sc_id";
    db.number(made, &[]).await
}

/// Keeps others from changing a cart until the transaction ends.
pub(in super::super) async fn lock(db: &Session, cart: i32) -> Result<(), Failure> {
    db.rows("SELECT sc_id FROM shopping_cart WHERE sc_id = $1 FOR UPDATE", &[int(&cart)]).await?;
    Ok(())
}

/// Puts a copy more of a book into a cart.
pub(in super::super) async fn add(db: &Session, cart: i32, item: i32) -> Result<(), Failure> {
    if db.row("SELECT i_id FROM item WHERE i_id = $1", &[int(&item)]).await?.is_none() {
        return Err(Failure::NotFound("book"));
    }
    let full = "SELECT count(*)::int FROM shopping_cart_line WHERE scl_sc_id = $1 AND scl_i_id <> $2";
    if db.number(full, &[int(&cart), int(&item)]).await? >= MAX_LINES as i32 {
        return Err(Failure::Nonsense(format!("A cart holds at most {MAX_LINES} different books.")));
    }
    let sql = "INSERT INTO shopping_cart_line AS line (scl_sc_id, scl_i_id, scl_qty) VALUES ($1, $2, 1) \
        ON CONFLICT (scl_sc_id, scl_i_id) DO UPDATE SET scl_qty = LEAST(line.scl_qty + 1, $3)";
    db.execute(sql, &[int(&cart), int(&item), int(&MAX_COPIES)]).await?;
    Ok(())
}

/// Sets how many copies of a book a cart holds, if it holds any; 0 takes the book out.
pub(in super::super) async fn set(db: &Session, cart: i32, item: i32, quantity: i32) -> Result<(), Failure> {
    if quantity == 0 {
        let sql = "DELETE FROM shopping_cart_line WHERE scl_sc_id = $1 AND scl_i_id = $2";
        db.execute(sql, &[int(&cart), int(&item)]).await?;
    } else {
        let sql = "UPDATE shopping_cart_line SET scl_qty = $3 WHERE scl_sc_id = $1 AND scl_i_id = $2";
        db.execute(sql, &[int(&cart), int(&item), int(&quantity)]).await?;
    }
    Ok(())
}

/// Puts a book that is related to one at random into a cart that is empty (TPC-W's rule).
pub(in super::super) async fn fill_if_empty(db: &Session, shop: &Shop, cart: i32) -> Result<(), Failure> {
    let count =
        db.number("SELECT count(*)::int FROM shopping_cart_line WHERE scl_sc_id = $1", &[int(&cart)]).await?;
    if count > 0 {
        return Ok(());
    }
    let book = shop.any_book(db).await?;
    let related = db.number("SELECT i_related1 FROM item WHERE i_id = $1", &[int(&book)]).await?;
    add(db, cart, related).await
}

/// What a cart holds, by the books' ids.
pub(in super::super) async fn lines(db: &Session, cart: i32) -> Result<Vec<Line>, Failure> {
    let sql = "SELECT scl_i_id, scl_qty, i_title, (i_cost * 100)::bigint, (i_srp * 100)::bigint, i_backing, i_thumbnail \
        FROM shopping_cart_line, item WHERE scl_i_id = i_id AND scl_sc_id = $1 ORDER BY scl_i_id";
    let rows = db.rows(sql, &[int(&cart)]).await?;
    let line = |row: &Row| {
        Ok(Line {
            item: row.try_get(0)?,
            quantity: row.try_get(1)?,
            title: row.try_get(2)?,
            price: Cents(row.try_get(3)?),
            list_price: Cents(row.try_get(4)?),
            backing: row.try_get(5)?,
            thumbnail: row.try_get(6)?,
        })
    };
    rows.iter().map(line).collect()
}
