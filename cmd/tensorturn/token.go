package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/pool"
	"tensorturn/projections/fleet"
)

func tokenCommand(a *app) *cobra.Command {
	return group("token", "make, list and revoke join tokens", tokenCreate(a), tokenList(a), tokenRevoke(a))
}

func tokenCreate(a *app) *cobra.Command {
	var uses int
	var expires time.Duration
	c := &cobra.Command{
		Use: "create", Short: "print a join token once", Args: args(),
		Long: "Prints a join token once; the hub keeps only its SHA-256. The token carries the hub's CA pin and a checksum.",
		RunE: func(c *cobra.Command, _ []string) error {
			if uses < 1 || uses > maxTokenUses {
				return domain.Invalid("create token", fmt.Sprintf("--uses is %d", uses), fmt.Sprintf("give 1 to %d", maxTokenUses))
			}
			if err := checkLife("create token", expires, pool.MaxTokenLife); err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			var t gateway.CreatedToken
			in := gateway.CreateToken{Uses: uses, Seconds: int64(expires / time.Second)}
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/tokens", in, &t); err != nil {
				return err
			}
			if a.json {
				return a.object(t)
			}
			a.print("%s", t.Token)
			a.say("on the machine that joins: %s", t.Join)
			a.say("valid for %s until %s", count(t.Uses, "use"), t.Expires.Format(time.RFC3339))
			return nil
		},
	}
	c.Flags().IntVar(&uses, "uses", 1, "machines it may join")
	c.Flags().DurationVar(&expires, "expires", 24*time.Hour, "how long it is valid, at most 720h")
	return c
}

// maxTokenUses is the hub's limit: a pool has no more machines.
const maxTokenUses = domain.MaxMachines

// checkLife refuses an --expires that the hub would refuse, in the words of the flag.
func checkLife(op string, life, limit time.Duration) error {
	if life >= time.Second && life <= limit {
		return nil
	}
	return domain.Invalid(op, "--expires is "+life.String(), fmt.Sprintf("give 1s to %.0fh", limit.Hours()))
}

func tokenList(a *app) *cobra.Command {
	return listing(a, "list join tokens by their public ids", "/api/v1/tokens", []string{"TOKEN", "STATE", "USES LEFT", "EXPIRES"}, func(t fleet.Token) [][]string {
		return [][]string{{string(t.ID), tokenState(t), itoa(t.Uses), t.Expires.Format(time.RFC3339)}}
	})
}

func tokenState(t fleet.Token) string {
	switch {
	case t.Revoked:
		return "revoked"
	case t.Uses == 0:
		return "used"
	case time.Now().After(t.Expires):
		return "expired"
	}
	return "valid"
}

func tokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{Use: "revoke TOKEN-ID", Short: "make a token worthless; machines that joined stay", Args: args("TOKEN-ID"),
		RunE: func(c *cobra.Command, got []string) error {
			id, err := domain.ParseID[domain.TokenID]("token", got[0])
			if err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			return cl.call(c.Context(), http.MethodDelete, "/api/v1/tokens/"+string(id), nil, nil)
		}}
}
