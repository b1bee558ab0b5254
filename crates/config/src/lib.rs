//! Gatekeeper's configuration: text in, a valid world or every error out.
