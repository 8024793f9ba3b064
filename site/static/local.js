// A browser lets no page on the disk read another one, so the search cannot quote the pages that it found.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
