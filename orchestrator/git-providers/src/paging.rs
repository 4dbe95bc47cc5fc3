//! Pages: `Link` headers, and lists that a provider does not page.

use reqwest::header::{HeaderMap, LINK};

/// Maximum number of items in a page.
pub(crate) const MAX_PAGE_ITEMS: u32 = 100;

/// Maximum number of pages that a call collects.
pub(crate) const MAX_PAGES: u32 = 10;

/// A requested page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRequest {
    /// From 1.
    pub(crate) number: u32,
    /// Number of items.
    pub(crate) size: u32,
}

/// A page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Whether there is another page.
    pub(crate) has_next: bool,
    /// Number of items of the list, if known.
    pub(crate) total: Option<u64>,
}

impl PageRequest {
    /// Creates a request within the limits of the providers.
    pub(crate) fn new(number: u32, size: u32) -> Self {
        Self {
            number: number.max(1),
            size: size.clamp(1, MAX_PAGE_ITEMS),
        }
    }

    /// Returns the largest first page.
    pub(crate) fn first() -> Self {
        Self::new(1, MAX_PAGE_ITEMS)
    }

    pub(crate) fn next(self) -> Self {
        Self {
            number: self.number.saturating_add(1),
            ..self
        }
    }

    /// Returns this page of a complete list.
    pub(crate) fn slice<T>(self, list: Vec<T>) -> Page<T> {
        let (total, size) = (list.len(), self.size as usize);
        let start = (self.number as usize - 1).saturating_mul(size);
        let has_next = start.saturating_add(size) < total;
        let items = list.into_iter().skip(start).take(size).collect();
        Page {
            items,
            has_next,
            total: Some(total as u64),
        }
    }

    /// Returns a `Link` header to the next page, for clients of lists that have none.
    pub(crate) fn next_link(self, has_next: bool) -> Option<String> {
        let Self { number, size } = self.next();
        has_next.then(|| format!("<?page={number}&per_page={size}>; rel=\"next\""))
    }
}

/// Collects pages until the last one, or [`MAX_PAGES`].
pub(crate) async fn collect_pages<T, E, F: Future<Output = Result<Page<T>, E>>>(
    mut fetch: impl FnMut(PageRequest) -> F,
) -> Result<Vec<T>, E> {
    let mut request = PageRequest::first();
    let mut items = Vec::new();
    loop {
        let page = fetch(request).await?;
        items.extend(page.items);
        if !page.has_next {
            return Ok(items);
        }
        if request.number == MAX_PAGES {
            tracing::info!(
                items = items.len(),
                "the list has further pages, which are not read"
            );
            return Ok(items);
        }
        request = request.next();
    }
}

/// Returns the `Link` header.
pub(crate) fn link_header(headers: &HeaderMap) -> Option<String> {
    headers.get(LINK)?.to_str().ok().map(str::to_owned)
}

/// Whether the `Link` header names a next page.
pub(crate) fn has_next_link(headers: &HeaderMap) -> bool {
    let is_next = |link: &str| {
        link.split(';').skip(1).any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or_default();
            name.trim() == "rel"
                && value
                    .trim()
                    .trim_matches('"')
                    .split_whitespace()
                    .any(|rel| rel == "next")
        })
    };
    link_header(headers).is_some_and(|links| links.split(',').any(is_next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_next(link: &'static str) -> bool {
        has_next_link(&HeaderMap::from_iter([(LINK, link.parse().unwrap())]))
    }

    #[test]
    fn next_link_is_found_among_others() {
        let github = r#"<https://api.github.com/x?page=1>; rel="prev", <https://api.github.com/x?page=3>; rel="next""#;
        assert!(has_next(github));
        assert!(has_next("<https://x/?a,b>; title=\"t\"; rel=next"));
        assert!(!has_next(
            r#"<https://x/?rel="next">; rel="prev", <https://x/>; rel="last""#
        ));
        assert!(!has_next_link(&HeaderMap::new()));
    }

    #[test]
    fn page_is_a_slice_of_the_list() {
        let slice = |number, size| PageRequest::new(number, size).slice(vec![1, 2, 3, 4, 5]);
        assert_eq!(
            slice(1, 2),
            Page {
                items: vec![1, 2],
                has_next: true,
                total: Some(5)
            }
        );
        assert_eq!(
            slice(3, 2),
            Page {
                items: vec![5],
                has_next: false,
                total: Some(5)
            }
        );
        assert_eq!(
            slice(1, 5),
            Page {
                items: vec![1, 2, 3, 4, 5],
                has_next: false,
                total: Some(5)
            }
        );
        assert_eq!(
            slice(u32::MAX, 100),
            Page {
                items: vec![],
                has_next: false,
                total: Some(5)
            }
        );
    }

    #[test]
    fn request_is_within_the_limits_of_the_providers() {
        assert_eq!(PageRequest::new(0, 0), PageRequest { number: 1, size: 1 });
        assert_eq!(
            PageRequest::new(7, 5_000),
            PageRequest {
                number: 7,
                size: 100
            }
        );
    }
}
