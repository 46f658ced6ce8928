package gateway_test

import (
	"net/http"
	"testing"

	"tensorturn/domain"
)

// A link of the hub that is no rate is refused: with infinity the figures of a round cannot be written as JSON.
func TestExplainTakesRatesAlone(t *testing.T) {
	r := newRig(t, nil)
	r.api(http.MethodPost, "/api/v1/runs", r.submission("r-1"), nil)
	for _, ask := range []string{"hub_up=Inf", "hub_up=NaN", "hub_down=%2BInf", "hub_down=1e19"} {
		r.call(http.MethodGet, "/api/v1/runs/r-1/explain?"+ask, r.key, nil).refused(t, http.StatusBadRequest, domain.KindInvalid, "bytes per second")
	}
	for _, ask := range []string{"", "?hub_up=1e6&hub_down=0", "?hub_up=1e18"} {
		r.api(http.MethodGet, "/api/v1/runs/r-1/explain"+ask, nil, nil)
	}
}
