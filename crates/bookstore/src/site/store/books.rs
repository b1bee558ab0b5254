//! Books: lists of them, one of them, and a change of one.

use super::super::failure::Failure;
use super::super::locking::Locking;
use super::super::session::{OrderLines, Session};
use super::super::shop::{Shop, cents, int, text};
use crate::database::Row;
use crate::money::Cents;

/// The most books of a list.
pub(in super::super) const LIST: usize = 50;

/// Five books that are related to another one (`getRelated`).
const PROMOTIONS: &str = "SELECT j.i_id, j.i_thumbnail, j.i_title FROM item i, item j WHERE (i.i_related1 = j.i_id OR \
    i.i_related2 = j.i_id OR i.i_related3 = j.i_id OR i.i_related4 = j.i_id OR i.i_related5 = j.i_id) AND i.i_id = $1";

const NEW: &str = "SELECT i_id, i_title, a_fname, a_lname, i_thumbnail, (i_cost * 100)::bigint FROM item, author \
    WHERE i_a_id = a_id AND i_subject = $1 ORDER BY i_pub_date DESC, i_title LIMIT 50";

const BEST: &str = "SELECT i_id, i_title, a_fname, a_lname, i_thumbnail, (i_cost * 100)::bigint FROM item, author, order_line \
    WHERE i_id = ol_i_id AND i_a_id = a_id AND ol_o_id > (SELECT MAX(o_id) - 3333 FROM orders) AND i_subject = $1 \
    GROUP BY i_id, i_title, a_fname, a_lname, i_thumbnail, i_cost ORDER BY SUM(ol_qty) DESC LIMIT 50";

/// The best sellers, found by reading all order lines. No index helps with a number to which 0 was added.
const BEST_BY_SCAN: &str = "SELECT i_id, i_title, a_fname, a_lname, i_thumbnail, (i_cost * 100)::bigint FROM item, author, \
    order_line WHERE i_id = ol_i_id AND i_a_id = a_id AND ol_o_id + 0 > (SELECT MAX(o_id) - 3333 FROM orders) AND \
    i_subject = $1 GROUP BY i_id, i_title, a_fname, a_lname, i_thumbnail, i_cost ORDER BY SUM(ol_qty) DESC LIMIT 50";

const BY_TITLE: &str = "SELECT i_id, i_title, a_fname, a_lname, i_thumbnail, (i_cost * 100)::bigint FROM item, author \
    WHERE i_a_id = a_id AND i_title LIKE $1 ORDER BY i_title LIMIT 50";

const BY_AUTHOR: &str = "SELECT i_id, i_title, a_fname, a_lname, i_thumbnail, (i_cost * 100)::bigint FROM item, author \
    WHERE i_a_id = a_id AND a_lname LIKE $1 ORDER BY i_title LIMIT 50";

const BY_SUBJECT: &str = "SELECT i_id, i_title, a_fname, a_lname, i_thumbnail, (i_cost * 100)::bigint FROM item, author \
    WHERE i_a_id = a_id AND i_subject = $1 ORDER BY i_title LIMIT 50";

const BOOK: &str = "SELECT i_id, i_title, a_fname, a_lname, i_thumbnail, (i_cost * 100)::bigint, i_image, i_subject, i_desc, \
    i_publisher, i_pub_date::text, (i_srp * 100)::bigint, i_stock, i_isbn::text, i_page, i_backing, i_dimensions, \
    i_avail::text FROM item, author WHERE i_a_id = a_id AND i_id = $1";

/// The five books that those bought who also bought this one, within the last 10,000 orders.
const BOUGHT_TOGETHER: &str = "SELECT ol_i_id FROM orders, order_line WHERE o_id = ol_o_id AND NOT (ol_i_id = $1) AND o_c_id IN \
    (SELECT o_c_id FROM orders, order_line WHERE o_id = ol_o_id AND o_id > (SELECT MAX(o_id) - 10000 FROM orders) \
    AND ol_i_id = $1) GROUP BY ol_i_id ORDER BY SUM(ol_qty) DESC LIMIT 5";

/// Books bought together with one, found by reading all order lines twice.
const BOUGHT_TOGETHER_BY_SCAN: &str = "SELECT ol_i_id FROM orders, order_line WHERE o_id = ol_o_id AND NOT (ol_i_id = $1) AND \
    o_c_id + 0 IN (SELECT o_c_id FROM orders, order_line WHERE o_id = ol_o_id AND o_id + 0 > (SELECT MAX(o_id) - 10000 \
    FROM orders) AND ol_i_id + 0 = $1) GROUP BY ol_i_id ORDER BY SUM(ol_qty) DESC LIMIT 5";

/// A book of a list.
#[derive(Clone, Debug)]
pub(in super::super) struct Listed {
    pub(in super::super) id: i32,
    pub(in super::super) title: String,
    pub(in super::super) author: String,
    pub(in super::super) thumbnail: String,
    pub(in super::super) price: Cents,
}

/// A book as its own page shows it.
#[derive(Clone, Debug)]
pub(in super::super) struct Book {
    pub(in super::super) listed: Listed,
    pub(in super::super) image: String,
    pub(in super::super) subject: String,
    pub(in super::super) description: String,
    pub(in super::super) publisher: String,
    pub(in super::super) published: String,
    pub(in super::super) list_price: Cents,
    pub(in super::super) stock: i32,
    pub(in super::super) isbn: String,
    pub(in super::super) pages: i32,
    pub(in super::super) backing: String,
    pub(in super::super) dimensions: String,
    pub(in super::super) available: String,
}

/// A book that is shown for its cover.
#[derive(Clone, Debug)]
pub(in super::super) struct Promotion {
    pub(in super::super) id: i32,
    pub(in super::super) thumbnail: String,
    pub(in super::super) title: String,
}

/// How books are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum By {
    Author,
    Title,
    Subject,
}

/// Five books to be shown beside a page, which are related to one at random.
pub(in super::super) async fn promotions(db: &Session, shop: &Shop) -> Result<Vec<Promotion>, Failure> {
    let book = shop.any_book(db).await?;
    let rows = db.rows(PROMOTIONS, &[int(&book)]).await?;
    let promotion =
        |row: &Row| Ok(Promotion { id: row.try_get(0)?, thumbnail: row.try_get(1)?, title: row.try_get(2)? });
    rows.iter().map(promotion).collect()
}

/// The newest books of a subject.
pub(in super::super) async fn new(db: &Session, subject: &str) -> Result<Vec<Listed>, Failure> {
    all(&db.rows(NEW, &[text(&subject)]).await?)
}

/// The books of a subject that sold best in the last 3,333 orders.
pub(in super::super) async fn best(db: &Session, subject: &str) -> Result<Vec<Listed>, Failure> {
    let sql = match db.manner.best_sellers {
        OrderLines::Index => BEST,
        OrderLines::Scan => BEST_BY_SCAN,
    };
    all(&db.rows(sql, &[text(&subject)]).await?)
}

/// Books by what their title or their author's last name begins with, or of a subject.
pub(in super::super) async fn search(db: &Session, by: By, query: &str) -> Result<Vec<Listed>, Failure> {
    let pattern = beginning(query);
    let (sql, parameter) = match by {
        By::Author => (BY_AUTHOR, pattern.as_str()),
        By::Title => (BY_TITLE, pattern.as_str()),
        By::Subject => (BY_SUBJECT, query),
    };
    all(&db.rows(sql, &[text(&parameter)]).await?)
}

/// One book.
pub(in super::super) async fn book(db: &Session, id: i32) -> Result<Book, Failure> {
    let row = db.row(BOOK, &[int(&id)]).await?.ok_or(Failure::NotFound("book"))?;
    Ok(Book {
        listed: listed(&row)?,
        image: row.try_get(6)?,
        subject: row.try_get(7)?,
        description: row.try_get(8)?,
        publisher: row.try_get(9)?,
        published: row.try_get(10)?,
        list_price: Cents(row.try_get(11)?),
        stock: row.try_get(12)?,
        isbn: row.try_get(13)?,
        pages: row.try_get(14)?,
        backing: row.try_get(15)?,
        dimensions: row.try_get(16)?,
        available: row.try_get(17)?,
    })
}

/// Changes a book, and computes anew what is related to it (`adminUpdate`).
pub(in super::super) async fn change(
    db: &Session,
    id: i32,
    price: Cents,
    image: &str,
    thumbnail: &str,
) -> Result<(), Failure> {
    if db.manner.locking == Locking::Rows {
        db.rows("SELECT i_id FROM item WHERE i_id = $1 FOR UPDATE", &[int(&id)]).await?;
    }
    let sql = "UPDATE item SET i_cost = $1 * 0.01, i_image = $2, i_thumbnail = $3, i_pub_date = CURRENT_DATE WHERE i_id = $4";
    db.execute(sql, &[cents(&price.0), text(&image), text(&thumbnail), int(&id)]).await?;
    let sql = match db.manner.bought_together {
        OrderLines::Index => BOUGHT_TOGETHER,
        OrderLines::Scan => BOUGHT_TOGETHER_BY_SCAN,
    };
    let found = db.rows(sql, &[int(&id)]).await?;
    let mut related: Vec<i32> = found.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if related.len() < 5 {
        // The specification fills up with the books that follow; those it has already stay what they are.
        let sql = "SELECT i_id FROM item WHERE i_id <> $1 AND i_id >= $2 ORDER BY i_id LIMIT 10";
        for start in [id, 1] {
            for row in db.rows(sql, &[int(&id), int(&start)]).await? {
                let candidate = row.try_get(0)?;
                if related.len() < 5 && !related.contains(&candidate) {
                    related.push(candidate);
                }
            }
        }
    }
    let [a, b, c, d, e] = related[..] else { return Err(Failure::Internal("fewer than six books")) };
    let sql = "UPDATE item SET i_related1 = $1, i_related2 = $2, i_related3 = $3, i_related4 = $4, i_related5 = $5 \
        WHERE i_id = $6";
    db.execute(sql, &[int(&a), int(&b), int(&c), int(&d), int(&e), int(&id)]).await?;
    Ok(())
}

fn all(rows: &[Row]) -> Result<Vec<Listed>, Failure> {
    rows.iter().map(listed).collect()
}

fn listed(row: &Row) -> Result<Listed, Failure> {
    let (first, last): (String, String) = (row.try_get(2)?, row.try_get(3)?);
    Ok(Listed {
        id: row.try_get(0)?,
        title: row.try_get(1)?,
        author: format!("{first} {last}"),
        thumbnail: row.try_get(4)?,
        price: Cents(row.try_get(5)?),
    })
}

/// The pattern of what begins with a text, whose own `%` and `_` mean themselves.
fn beginning(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_looks_for_the_same_books() {
        let words = |sql: &str| sql.replace(" + 0", "").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(BEST_BY_SCAN), words(BEST));
        assert_eq!(words(BOUGHT_TOGETHER_BY_SCAN), words(BOUGHT_TOGETHER));
    }

    #[test]
    fn a_searched_text_means_itself() {
        assert_eq!(beginning("100%_\\"), "100\\%\\_\\\\%");
    }
}
