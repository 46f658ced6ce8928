package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"tensorturn/domain"
)

// maxPages bounds a list: a hub whose next page is always another one must not hold the command for ever.
const maxPages = 10_000

// pages reads a list of the API to its end.
func pages[T any](ctx context.Context, c *client, path string) ([]T, error) {
	out := []T{}
	err := eachPage(ctx, c, path, func(page []T) { out = append(out, page...) })
	return out, err
}

// eachPage hands every page of an answer of the API to take.
func eachPage[P any](ctx context.Context, c *client, path string, take func(P)) error {
	for range maxPages {
		resp, err := c.do(ctx, http.MethodGet, path, nil, 0)
		if err != nil {
			return err
		}
		var page P
		err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&page)
		resp.Body.Close()
		if err != nil {
			return domain.Unavailable("read "+path, "the hub's answer was cut", "try again", err)
		}
		take(page)
		if path = nextPage(resp.Header.Get("Link")); path == "" {
			return nil
		}
	}
	return domain.Unavailable("read list", "the hub's list has no end", "use the hub's version of this program", nil)
}

// nextPage is the path of a Link header's next page, "" on the last. A list's pages are on the hub it was asked of.
func nextPage(link string) string {
	path, rest, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if !ok || !strings.Contains(rest, `rel="next"`) || !strings.HasPrefix(path, "/api/") {
		return ""
	}
	return path
}
