//! What all pages have in common: the head, the search, the subjects, the foot; and small pieces that
//! several show.

use maud::{DOCTYPE, Markup, html};

use super::store::books::{Listed, Promotion};
use super::visitor::Visitor;
use crate::interaction::Interaction;
use crate::names::SUBJECTS;

/// The shop's name.
const NAME: &str = "Marginalia";

/// A whole page of an interaction.
pub(super) fn page(title: &str, interaction: Interaction, visitor: &Visitor, content: &Markup) -> Markup {
    body(title, Some(interaction.code()), None, &frame(visitor.copies, None, content))
}

/// A whole page of an interaction that highlights a subject.
pub(super) fn subject_page(
    title: &str,
    interaction: Interaction,
    visitor: &Visitor,
    subject: &str,
    content: &Markup,
) -> Markup {
    body(title, Some(interaction.code()), None, &frame(visitor.copies, Some(subject), content))
}

/// A page that says what went wrong.
pub(super) fn error_page(title: &str, word: &str, content: &Markup) -> Markup {
    body(title, None, Some(word), &frame(0, None, content))
}

fn body(title: &str, code: Option<&str>, error: Option<&str>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (NAME) }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="/icon.svg" type="image/svg+xml";
            }
            body data-interaction=[code] data-error=[error] { (content) }
        }
    }
}

fn frame(copies: i32, subject: Option<&str>, content: &Markup) -> Markup {
    html! {
        a.skip href="#content" { "Skip to the content" }
        header.top {
            div.bar {
                a.brand href="/" { (NAME) }
                form.search role="search" action="/search/results" method="get" {
                    label.hidden for="top-by" { "Search by" }
                    select #top-by name="by" {
                        option value="title" { "Title" }
                        option value="author" { "Author" }
                    }
                    label.hidden for="top-q" { "Search for" }
                    input #top-q type="search" name="q" placeholder="A title begins with…" required maxlength="60";
                    button type="submit" { "Search" }
                }
                nav.tools aria-label="Your shop" {
                    a href="/orders" { "Orders" }
                    a.cart href="/cart" {
                        "Cart"
                        @if copies > 0 { span.count aria-label={ (copies) " books" } { (copies) } }
                    }
                }
            }
        }
        div.columns {
            nav.subjects aria-label="Subjects" {
                ul {
                    @for name in SUBJECTS {
                        li { a href={ "/new?subject=" (name) } aria-current=[(subject == Some(name)).then_some("page")] { (spoken(name)) } }
                    }
                }
            }
            main #content { (content) }
        }
        footer {
            p { (NAME) " is a shop of TPC-W: its books don't exist, and nothing is sold." }
            p { a href="/search" { "Search" } " · " a href="/orders" { "Your last order" } " · " a href="/cart" { "Cart" } }
        }
    }
}

/// A subject as one says it: `SCIENCE-FICTION` is Science fiction.
pub(super) fn spoken(subject: &str) -> String {
    let lower = subject.to_lowercase();
    let text = match subject {
        "NON-FICTION" | "SELF-HELP" => lower,
        "SCIENCE-NATURE" => "science & nature".to_owned(),
        _ => lower.replace('-', " "),
    };
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The five books that a page recommends.
pub(super) fn promotions(books: &[Promotion]) -> Markup {
    html! {
        section.promotions aria-labelledby="promotions" {
            h2 #promotions { "You may like" }
            ul.shelf {
                @for book in books {
                    li { a href={ "/books/" (book.id) } { (thumbnail(&book.thumbnail, &book.title)) } }
                }
            }
        }
    }
}

/// Many books, by their covers.
pub(super) fn grid(books: &[Listed]) -> Markup {
    covers("grid", books)
}

/// A grid of books with each book's place.
pub(super) fn ranking(books: &[Listed]) -> Markup {
    covers("grid numbered", books)
}

fn covers(class: &str, books: &[Listed]) -> Markup {
    html! {
        ol class=(class) {
            @for book in books {
                li.book {
                    a href={ "/books/" (book.id) } {
                        (thumbnail(&book.thumbnail, ""))
                        span.title { (book.title) }
                    }
                    span.author { (book.author) }
                    span.price { "$" (book.price) }
                }
            }
        }
    }
}

/// A small cover; without a text for those who can't see it where its title stands beside it.
pub(super) fn thumbnail(path: &str, title: &str) -> Markup {
    html! { img.thumbnail src={ "/images/" (path) } alt=(title) width="120" height="180" loading="lazy" decoding="async"; }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_said_as_words() {
        for (subject, words) in
            [("ARTS", "Arts"), ("SCIENCE-FICTION", "Science fiction"), ("NON-FICTION", "Non-fiction")]
        {
            assert_eq!(spoken(subject), words);
        }
    }
}
