package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/broker/health"
	"tensorturn/domain"
)

func hubStatus(a *app) *cobra.Command {
	return &cobra.Command{Use: "status", Short: "show whether the hub is ready, and the room for its store", Args: args(),
		Long: "Asks the running hub about itself. The same in one word, without a key: curl -k https://HUB/healthz",
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			s, err := cl.status(c.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.object(s)
			}
			a.showStatus(s)
			return nil
		}}
}

// status asks the hub about itself.
func (c *client) status(ctx context.Context) (gateway.HubStatus, error) {
	var s gateway.HubStatus
	return s, c.call(ctx, http.MethodGet, "/api/v1/hub", nil, &s)
}

func (a *app) showStatus(s gateway.HubStatus) {
	rows := [][]string{{"state", string(s.State)}}
	if s.State != health.Ready {
		rows = append(rows, []string{"why", s.Why})
	}
	rows = append(rows, []string{"version", s.Version}, []string{"records", itoa(s.Records)},
		[]string{"disk free", fmt.Sprintf("%s of %s (no new runs below %s)", domain.FormatSize(s.Free), domain.FormatSize(s.Total), domain.FormatSize(s.MinFree))})
	for _, u := range s.Shares {
		rows = append(rows, []string{u.Stream, fmt.Sprintf("%s of %s", domain.FormatSize(u.Bytes), domain.FormatSize(u.Limit))})
	}
	if s.Healed > 0 {
		rows = append(rows, []string{"store recycled", count(s.Healed, "time")})
	}
	a.table([]string{"FIELD", "VALUE"}, rows)
}
