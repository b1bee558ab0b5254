//! Pictures as PNG: the same SVG, with a font of the system.

use std::sync::Arc;

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::Error;

/// Pixels for each unit of the picture: sharp on today's screens.
const SCALE: f32 = 2.0;
/// Families that read well, before any other that is there.
const PREFERRED: [&str; 6] =
    ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans", "Noto Sans", "FreeSans"];

/// The fonts that are there.
pub(super) struct Fonts(Option<Arc<fontdb::Database>>);

impl Fonts {
    pub(super) fn of_the_system() -> Self {
        let mut fonts = fontdb::Database::new();
        fonts.load_system_fonts();
        let family =
            |name: &str| fonts.faces().any(|face| face.families.iter().any(|(family, _)| family == name));
        let any =
            || fonts.faces().next().and_then(|face| face.families.first()).map(|(family, _)| family.clone());
        let chosen = PREFERRED.iter().find(|name| family(name)).map(|name| (*name).to_owned()).or_else(any);
        Self(chosen.map(|name| {
            fonts.set_sans_serif_family(name);
            Arc::new(fonts)
        }))
    }

    /// Whether there is none, and so no picture either: one without letters would say nothing.
    pub(super) const fn are_missing(&self) -> bool {
        self.0.is_none()
    }

    /// A picture as the bytes of a PNG; none without fonts.
    pub(super) fn render(&self, svg: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(fonts) = &self.0 else { return Ok(None) };
        let options = Options { fontdb: Arc::clone(fonts), ..Options::default() };
        let said = |problem: String| Error::Experiment(format!("drawing a PNG: {problem}"));
        let tree = Tree::from_str(svg, &options).map_err(|error| said(error.to_string()))?;
        let size = tree.size();
        let pixels = |length: f32| (length * SCALE).ceil() as u32;
        let mut pixmap = Pixmap::new(pixels(size.width()), pixels(size.height()))
            .ok_or_else(|| said("it has no size".to_owned()))?;
        pixmap.fill(Color::WHITE);
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
        pixmap.encode_png().map(Some).map_err(|error| said(error.to_string()))
    }
}
