package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"tensorturn/broker/feed"
	"tensorturn/broker/identity"
	"tensorturn/broker/jetstream"
	"tensorturn/broker/webhook"
	"tensorturn/domain"
	"tensorturn/domain/event"
	render "tensorturn/projections/feed"
	"tensorturn/projections/observers"
)

// feedWait is how long an observer that begins at a place waits for the feed to come there.
const feedWait = 10 * time.Second

// hubID names this hub for other systems: it follows from the key that signs heads, and stays when the hub moves.
func hubID(k *identity.Keys) string {
	return event.Digest(k.Head().Public().(ed25519.PublicKey)).Short()
}

// openFeed makes what follows the log. It comes before the service starts, which tells it the log's position.
func (h *hubProcess) openFeed() {
	h.source = feed.NewSource(h.store.Log, registry(), render.NewFormat(registry(), hubID(h.keys)))
	h.publisher = feed.NewPublisher(h.store.Feed, h.source, h.opts.logger)
	h.hooks = webhook.New(webhook.Config{Dir: filepath.Join(h.opts.dir, "webhooks"), Source: h.source, Private: h.opts.privateWebhooks,
		Version: version, Now: wallClock, Logger: h.opts.logger})
	h.service.Follow(h.source)
	h.service.Follow(h.metrics)
	h.later(func() error { h.publisher.Stop(); return nil }) // after the service, so that its last events are published
	h.later(func() error { h.hooks.Stop(); return nil })
}

// startFeed begins to publish and lets the observers of the log in again.
func (h *hubProcess) startFeed(ctx context.Context) error {
	h.source.GoLive()
	h.metrics.GoLive()
	if err := h.feedAhead(ctx, h.source.Position()); err != nil {
		h.service.Distrust(ctx, err)
		h.readOnly = h.service.ReadOnly()
	}
	h.publisher.Start()
	if err := h.admitObservers(ctx); err != nil { // a hub without its feed still trains
		h.opts.logger.Error().Err(err).Msg("observers not let in")
	}
	return h.hooks.Start()
}

// feedAhead is the error for a log that ends before what observers were told: its end is lost, whatever else says about it.
func (h *hubProcess) feedAhead(ctx context.Context, end uint64) error {
	seq, _, err := h.store.Feed.Tail(ctx)
	if err != nil || seq <= end { // what is wrong with the feed alone is the publisher's to say
		return nil
	}
	return event.Break(end+1, fmt.Sprintf("the log ends at %d, and observers were told event %d of it", end, seq), nil)
}

// admitObservers loads every live observer and removes consumers of those that are not, which a crash may have left.
func (h *hubProcess) admitObservers(ctx context.Context) error {
	var list []observers.Observer
	h.views.Engine.Read(func(uint64) { list = h.views.Observers.List() })
	var live []string
	for _, o := range list {
		if !o.Live(wallClock()) {
			continue
		}
		live = append(live, o.Account)
		if err := h.letIn(ctx, o); err != nil {
			h.opts.logger.Error().Str("observer", string(o.ID)).Err(err).Str("next", domain.NextOf(err)).Msg("observer not let in")
		}
	}
	there, err := h.store.Feed.Observers(ctx)
	if err != nil {
		return err
	}
	for _, name := range there {
		// Only accounts' own consumers: an owner may keep others on the stream.
		if ours := len(name) == accountKeyLength && name[0] == 'A'; ours && !slices.Contains(live, name) {
			if err := h.store.Feed.DismissObserver(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// accountKeyLength is that of a public account nkey.
const accountKeyLength = 56

// letIn loads the observer's account and makes its consumer, unless both are there.
func (h *hubProcess) letIn(ctx context.Context, o observers.Observer) error {
	id, err := h.keys.KnownObserver(o.ID)
	if err != nil {
		return err
	}
	place := jetstream.Observer{Consumer: o.Account, Filter: render.Filter(o.Run), From: o.From}
	if o.Since != nil {
		place.Since = *o.Since
	}
	if o.From > 0 || o.Since != nil { // its place is found when the feed has come there
		wait, cancel := context.WithTimeout(ctx, feedWait)
		defer cancel()
		if err := h.publisher.Wait(wait, h.source.Position()); err != nil {
			return err
		}
	}
	if err := h.store.Feed.AdmitObserver(ctx, place); err != nil {
		return err
	}
	token, err := h.keys.ObserverAccount(id)
	if err != nil {
		return err
	}
	return h.broker.UpdateAccount(token)
}

// NewObserver makes the account of an observer.
func (h *hubProcess) NewObserver(id domain.ObserverID) (string, error) {
	o, err := h.keys.Observer(id)
	return o.Account, err
}

// AdmitObserver lets an observer in that was just recorded and issues its credential.
func (h *hubProcess) AdmitObserver(ctx context.Context, o observers.Observer) (string, error) {
	id, err := h.keys.KnownObserver(o.ID)
	if err != nil {
		return "", err
	}
	credential, err := id.Credential(o.NKey, o.Expires, wallClock())
	if err != nil {
		return "", err
	}
	return credential, h.letIn(ctx, o)
}

// DismissObserver ends an observer's connections and removes its consumer.
func (h *hubProcess) DismissObserver(ctx context.Context, o observers.Observer) error {
	id, err := h.keys.KnownObserver(o.ID)
	if err != nil {
		return err
	}
	token, err := h.keys.RevokedObserver(id, wallClock())
	if err != nil {
		return err
	}
	if err := h.broker.RevokeMachine(token); err != nil {
		return err
	}
	return h.store.Feed.DismissObserver(ctx, o.Account)
}
