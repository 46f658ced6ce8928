package pool_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"tensorturn/domain"
	"tensorturn/domain/pool"
)

// serving reads the words of stories about keys and deployed models, nil for none of them:
//
//	key ID SECRET [model=] [role=] [run=] [rate=] [per=] [days=]    revoke-key ID
//	deploy RUN name= [weights=] [on=]    rollback NAME [to=]    retire NAME
//	count KEY NAME VERSION requests= [rows=] [errors=]
func serving(t *testing.T, o *owner, d *datadriven.TestData) pool.Command {
	arg := func(i int) string { return d.CmdArgs[i].Key }
	text := func(name, otherwise string) string {
		for _, a := range d.CmdArgs {
			if a.Key == name {
				return strings.Join(a.Vals, ",")
			}
		}
		return otherwise
	}
	number := func(name string, otherwise int) int {
		d.MaybeScanArgs(t, name, &otherwise)
		return otherwise
	}
	switch d.Cmd {
	case "key":
		c := pool.CreateKey{ID: domain.KeyID(arg(0)), Hash: hash(arg(1)), Tail: "wxyz", Model: domain.ModelID(text("model", "")), Role: pool.Role(text("role", "model")),
			Run: domain.RunID(text("run", "")), Rate: number("rate", 0), Per: number("per", 0), Now: o.now}
		c.Expires = o.now.Add(time.Duration(number("days", 90)) * 24 * time.Hour)
		return c
	case "revoke-key":
		return pool.RevokeKey{ID: domain.KeyID(arg(0))}
	case "deploy":
		return pool.DeployModel{Run: domain.RunID(arg(0)), Model: domain.ModelID(text("name", "")), Kind: "mlp", Weights: hash(text("weights", arg(0))),
			Layout: hash("layout"), Data: hash("data"), Where: pool.Where(text("on", "hub")), Copies: number("copies", 0)}
	case "rollback":
		return pool.RollBackModel{Model: domain.ModelID(arg(0)), To: number("to", 0)}
	case "retire":
		return pool.RetireModel{Model: domain.ModelID(arg(0))}
	case "count":
		n := pool.InferenceCounted{Key: domain.KeyID(arg(0)), Model: domain.ModelID(arg(1)), Run: "r-1", Minute: o.now.Truncate(time.Minute).UnixMicro(),
			Requests: int64(number("requests", 1)), Rows: int64(number("rows", 1)), Errors: int64(number("errors", 0))}
		fmt.Sscan(arg(2), &n.Version)
		return pool.CountInference{Counts: []pool.InferenceCounted{n}}
	}
	return nil
}
