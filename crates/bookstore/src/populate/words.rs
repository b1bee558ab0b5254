//! The words that books, people and places are made of.

use super::chance::Chance;

/// First names.
#[rustfmt::skip]
pub(super) const FIRST_NAMES: [&str; 48] = [
    "Ada", "Amos", "Anna", "Aron", "Beth", "Boris", "Carla", "Cyrus", "Dora", "Edgar", "Elena", "Emil", "Erika", "Felix",
    "Flora", "Greta", "Hanna", "Hugo", "Ida", "Igor", "Irene", "Jonas", "Julia", "Karel", "Lena", "Leo", "Lucia", "Magda",
    "Marek", "Mira", "Nadia", "Nils", "Nora", "Olga", "Oscar", "Paula", "Petra", "Rosa", "Ruben", "Sara", "Selma", "Simon",
    "Tamar", "Theo", "Ulla", "Vera", "Viktor", "Zora",
];

/// What customers are called.
#[rustfmt::skip]
const SURNAMES: [&str; 48] = [
    "Abbott", "Adler", "Barros", "Becker", "Bishop", "Carver", "Castro", "Costa", "Dahl", "Dekker", "Ellis", "Engel",
    "Falk", "Fisher", "Garnier", "Grant", "Hagen", "Harper", "Ibsen", "Ito", "Jansen", "Kaplan", "Keller", "Kovacs",
    "Lang", "Lund", "Marsh", "Meyer", "Moreau", "Nagy", "Novak", "Okafor", "Olsen", "Park", "Peters", "Quinn", "Ramos",
    "Reed", "Rossi", "Sato", "Silva", "Stone", "Tanaka", "Torres", "Vogel", "Weber", "Wolf", "Young",
];

#[rustfmt::skip]
const ADJECTIVES: [&str; 40] = [
    "Silent", "Hidden", "Golden", "Last", "Broken", "Distant", "Quiet", "Crooked", "Burning", "Winter", "Paper", "Hollow",
    "Northern", "Borrowed", "Patient", "Scarlet", "Secret", "Wandering", "Second", "Salted", "Invisible", "Narrow",
    "Copper", "Sleeping", "Unwritten", "Electric", "Common", "Bright", "Stubborn", "Floating", "Green", "Honest",
    "Forgotten", "Tall", "Early", "Curious", "Blue", "Perfect", "Wild", "Little",
];

#[rustfmt::skip]
const NOUNS: [&str; 48] = [
    "Orchard", "Harbor", "Lantern", "River", "Archive", "Garden", "Window", "Mountain", "Letter", "Machine", "Kitchen",
    "Bridge", "Island", "Clock", "Forest", "Mirror", "Station", "Weather", "Map", "Table", "Shore", "Engine", "Staircase",
    "Sparrow", "Theater", "Comet", "Market", "Notebook", "Tower", "Tide", "Piano", "Desert", "Corridor", "Key", "Ferry",
    "Lighthouse", "Meadow", "Violin", "Painter", "Stranger", "Fox", "Valley", "Treaty", "Equation", "Bakery", "Voyage",
    "Question", "Circus",
];

/// What follows the word that a title begins with.
const TITLES: [&str; 12] = [
    " and the @ #",
    ": The @ #",
    ", or the @ #",
    " of the @ #",
    "'s @ #",
    ": A History of the #",
    ": Notes from a @ #",
    " at the #",
    ": The # and the $",
    ": A Guide to the @ #",
    " and the Art of the #",
    ": On the # and the $",
];

#[rustfmt::skip]
const SENTENCES: [&str; 24] = [
    "It begins on an ordinary morning, with a letter that should never have been opened.",
    "Few books explain so much in so few pages.",
    "With maps, recipes and an index that is worth reading for itself.",
    "The author has spent eleven years in the archives, and it shows.",
    "A story about what we keep and what we give away.",
    "This edition has been revised throughout.",
    "You will not look at a staircase in the same way again.",
    "It asks a simple question and follows it around the world.",
    "Funny, exact, and sadder than it seems.",
    "For beginners, and for those who have forgotten that they were.",
    "Every chapter can be read on its own, preferably on a train.",
    "The neighbors know more than they say.",
    "What the tide brings in, somebody must carry home.",
    "Written for everybody who has ever waited for a ferry.",
    "Contains more than two hundred drawings by the author.",
    "A classic that was out of print for too long.",
    "Nobody leaves the island as they came.",
    "Its arguments are clear, its examples are taken from life.",
    "There is a dog, and it survives.",
    "The second half turns everything around.",
    "Clear instructions, honest measurements, no miracles.",
    "A quiet book that stays with its reader.",
    "It was written at night, and is best read then.",
    "The illustrations alone are worth the price.",
];

#[rustfmt::skip]
const PUBLISHERS: [&str; 16] = [
    "Harbor & Lane", "Third Lamp Press", "Blue Stairs", "Northwind Books", "The Paper Mill", "Orchard House", "Ampersand",
    "Quarto & Sons", "Long Table Press", "Windowsill Editions", "Fen Press", "Copperplate", "Tramline Books",
    "Old Ferry Press", "Margin Editions", "Lighthouse",
];

#[rustfmt::skip]
pub(super) const STREETS: [&str; 24] = [
    "Mill Lane", "Harbor Street", "Church Road", "Station Avenue", "Orchard Way", "Bridge Street", "High Street",
    "Park Road", "Garden Row", "River Walk", "Hill Street", "Market Square", "Linden Street", "Ferry Road", "School Lane",
    "Chestnut Avenue", "Tower Street", "Meadow Lane", "North Street", "Canal Street", "Victoria Road", "Elm Street",
    "Long Acre", "Quarry Road",
];

#[rustfmt::skip]
pub(super) const TOWNS: [&str; 24] = [
    "Ashford", "Brookhaven", "Carrow", "Dunmore", "Eastvale", "Fairport", "Glenwood", "Hartley", "Inverness", "Kingsmere",
    "Lakeside", "Marlow", "Newbridge", "Oakham", "Porto Alto", "Queensbury", "Ravenna", "Stillwater", "Thornton",
    "Uppsala", "Villanova", "Westbrook", "Yarrow", "Zell",
];

/// The bindings (`I_BACKING`).
pub(super) const BACKINGS: [&str; 5] = ["HARDBACK", "PAPERBACK", "USED", "AUDIO", "LIMITED-EDITION"];

/// The longest title, in characters.
const MAX_TITLE: usize = 60;

/// A title that begins with a word.
pub(super) fn title(first: &str, chance: &mut Chance) -> String {
    let mut title = first.to_owned();
    for piece in chance.choose(&TITLES).chars() {
        match piece {
            '@' => title.push_str(chance.choose(&ADJECTIVES)),
            '#' | '$' => title.push_str(chance.choose(&NOUNS)),
            other => title.push(other),
        }
    }
    debug_assert!(title.len() <= MAX_TITLE, "{title}");
    title
}

/// What customers are called.
pub(super) fn surname(chance: &mut Chance) -> &'static str {
    chance.choose(&SURNAMES)
}

/// The publisher of a book.
pub(super) fn publisher(chance: &mut Chance) -> &'static str {
    chance.choose(&PUBLISHERS)
}

/// Sentences with at least `least` and at most 500 characters.
pub(super) fn prose(least: usize, chance: &mut Chance) -> String {
    let mut text = String::with_capacity(512);
    let start = chance.below(SENTENCES.len() as u32) as usize;
    // A step that shares no factor with their number: none comes twice.
    let step = chance.choose(&[&5_usize, &7, &11, &13]);
    for index in 0..SENTENCES.len() {
        let sentence = SENTENCES[(start + index * step) % SENTENCES.len()];
        if text.len() >= least || text.len() + sentence.len() + 1 > 500 {
            break;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(sentence);
    }
    text
}

/// A long text of plain words, from which pieces are cut: made once, since a random text for each row would
/// take longer than to store it.
pub(super) struct Pool(String);

/// Characters of the pool.
const POOL: usize = 1 << 16;

impl Pool {
    /// Fills a pool that all rows share. Each row takes a random piece of it.
    pub(super) fn new(chance: &mut Chance) -> Self {
        let mut text = String::with_capacity(POOL + 64);
        while text.len() < POOL {
            text.push_str(&chance.choose(&ADJECTIVES).to_lowercase());
            text.push(' ');
            text.push_str(&chance.choose(&NOUNS).to_lowercase());
            text.push(' ');
        }
        text.truncate(POOL);
        Self(text)
    }

    /// A piece of a length between two, neither beginning nor ending with a space.
    pub(super) fn piece(&self, low: i32, high: i32, chance: &mut Chance) -> &str {
        let length = chance.between(low, high).unsigned_abs() as usize;
        let start = chance.below((POOL - length) as u32) as usize;
        self.0[start..start + length].trim()
    }
}

#[cfg(test)]
mod tests {
    use super::super::chance::Purpose;
    use super::*;

    #[test]
    fn the_longest_title_fits() {
        let longest = |words: &[&str]| words.iter().map(|word| word.len()).max().unwrap_or_default();
        for pattern in TITLES {
            let of = |mark: char, words: &[&str]| pattern.matches(mark).count() * (longest(words) - 1);
            let length = 14 + pattern.len() + of('@', &ADJECTIVES) + of('#', &NOUNS) + of('$', &NOUNS);
            assert!(length <= MAX_TITLE, "{pattern}: {length}");
        }
    }

    #[test]
    fn prose_is_as_long_as_asked_and_fits_its_column() {
        for row in 0..1_000 {
            let mut chance = Chance::of(1, Purpose::Book, row);
            let least = chance.between(100, 400) as usize;
            let text = prose(least, &mut chance);
            assert!((least..=500).contains(&text.len()), "{} for {least}", text.len());
        }
    }
}
