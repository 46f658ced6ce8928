package gateway

import (
	"net/url"
	"strconv"

	"tensorturn/domain"
)

// Limits of one page of a list.
const (
	defaultPage = 200
	maxPage     = 1000
)

// Page is the part of a list that is asked for. Lists are oldest first, and what is made meanwhile comes at their end, so
// that pages neither repeat nor leave out what is there from the first to the last of them.
type Page struct {
	After string `query:"after" maxLength:"80" doc:"id of the last one seen; from the beginning when absent"`
	Limit int    `query:"limit" minimum:"0" maximum:"1000" doc:"how many at most; 200 when absent"`
}

// listBody is one page. Link names the next one as RFC 8288 says, and is absent on the last.
type listBody[T any] struct {
	Link string `header:"Link" doc:"the next page: <path>; rel=\"next\""`
	Body []T
}

// pageOf cuts the page out of a whole list; path is the list's own.
func pageOf[T any](g *Gateway, p Page, path string, all []T, id func(T) string) (*listBody[T], error) {
	return pageWith(g, p, path, url.Values{}, all, id)
}

// pageWith does so for a list that is asked for with a query of its own, which the next page repeats.
func pageWith[T any](g *Gateway, p Page, path string, q url.Values, all []T, id func(T) string) (*listBody[T], error) {
	from := 0
	if p.After != "" {
		for from < len(all) && id(all[from]) != p.After {
			from++
		}
		if from++; from > len(all) {
			return nil, g.problemOf(domain.Invalid("read page", "the list holds no "+domain.Clip(p.After, domain.MaxNameLength)+" any more", "read it again from the beginning"))
		}
	}
	limit := p.Limit
	if limit == 0 {
		limit = defaultPage
	}
	to := min(from+min(limit, maxPage), len(all))
	out := &listBody[T]{Body: append([]T{}, all[from:to]...)}
	if to < len(all) {
		q.Set("after", id(all[to-1]))
		q.Set("limit", strconv.Itoa(limit))
		out.Link = nextLink(path, q)
	}
	return out, nil
}

// nextLink is the value of a Link header.
func nextLink(path string, q url.Values) string {
	return "<" + path + "?" + q.Encode() + `>; rel="next"`
}
