package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// leastQuota is the least of bytes: files are measured in blocks.
const leastQuota = 100_000_000

// ParseQuotas reads what tenants may have: a number for each tenant that is not
// named (50GB), and for some that are (team-a=200GB); 0: no limit. Series are
// numbers without a unit.
func ParseQuotas(bytes, series []string) (store.Quotas, error) {
	ofBytes, err := parseByTenant(bytes, parseQuota)
	if err != nil {
		return nil, fmt.Errorf("quota of bytes: %w", err)
	}
	ofSeries, err := parseByTenant(series, parseSeries)
	if err != nil {
		return nil, fmt.Errorf("quota of series: %w", err)
	}
	return func(tenant string) store.Quota {
		return store.Quota{Bytes: ofBytes.of(tenant), Series: int(ofSeries.of(tenant))}
	}, nil
}

// byTenant are numbers, "" that of tenants which are not named.
type byTenant map[string]int64

func (b byTenant) of(tenant string) int64 {
	if n, ok := b[tenant]; ok {
		return n
	}
	return b[""]
}

func parseByTenant(parts []string, parse func(string) (int64, error)) (byTenant, error) {
	all := byTenant{}
	for _, part := range parts {
		tenant, number, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			tenant, number = "", tenant
		} else if err := auth.CheckTenant(tenant); err != nil {
			return nil, err
		}
		n, err := parse(number)
		if err != nil {
			return nil, err
		}
		if _, twice := all[tenant]; twice {
			return nil, fmt.Errorf("%q: there is one for the same tenant already", part)
		}
		all[tenant] = n
	}
	return all, nil
}

func parseQuota(text string) (int64, error) {
	n, err := spec.ParseBytes(text)
	if err == nil && n != 0 && n < leastQuota {
		err = fmt.Errorf("%q: want %d MB at least, or 0 for no limit", text, int64(leastQuota/1e6))
	}
	return n, err
}

func parseSeries(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q: want a number of series, such as %d", text, store.DefaultSeries)
	}
	return n, nil
}

// room drops a tenant's oldest windows while it has more than nine tenths of its
// quota: agents that find no room wait, and what they have for long they lose. Where
// that would not make room it drops none: stacks that fill a quota stay.
func (u *upkeep) room(ctx context.Context, tenant string, now time.Time) error {
	quota := u.options.Quotas.Of(tenant).Bytes
	if quota == 0 {
		return nil
	}
	usage, err := u.options.Store.Usage(ctx, tenant)
	for {
		if err != nil {
			return err
		}
		u.sizes.note(tenant, usage, now)
		most := quota - quota/10
		if usage.Bytes() < most {
			u.full[tenant] = false
			return nil
		}
		level, before, ok := usage.Oldest(now)
		if lasting := usage.Lasting(now) >= most; lasting || !ok {
			if !u.full[tenant] {
				u.tellFull(ctx, tenant, usage, lasting && ok)
			}
			u.full[tenant] = true
			return nil
		}
		if err := u.options.Store.Drop(ctx, tenant, level, before); err != nil {
			return err
		}
		had := usage.Bytes()
		if usage, err = u.options.Store.Usage(ctx, tenant); err == nil {
			u.metrics.dropped.WithLabelValues(tenant, level.String()).Add(float64(max(had-usage.Bytes(), 0)))
			u.log.Warn("a tenant's quota is almost full: its oldest windows are dropped", "tenant", tenant, "level", level.String(),
				"before", before.Format(time.DateOnly), "bytes", had, "bytes left", usage.Bytes(), "stacks", usage.Stacks, "quota", quota)
		}
	}
}

// tellFull says that a tenant has as much as it may, and nothing is dropped: because
// there is nothing, or because that would not help.
func (u *upkeep) tellFull(ctx context.Context, tenant string, usage *store.Usage, vain bool) {
	about := []any{"tenant", tenant, "bytes", usage.Bytes(), "stacks", usage.Stacks, "quota", u.options.Quotas.Of(tenant).Bytes}
	if !vain {
		u.log.Warn("a tenant's quota is almost full, and there is nothing to drop but what came today", about...)
		return
	}
	if s, ok := u.options.Store.(largest); ok {
		if service, bytes, err := s.Largest(ctx, tenant); err == nil { // else the store cannot be read, and says so elsewhere
			about = append(about, "most of", service, "its stacks", bytes)
		}
	}
	u.log.Warn("a tenant's quota is almost full of stacks and days, which are kept: nothing is dropped, since that would not make room; give it more", about...)
}

// largest is a store that can tell which service's stacks take most.
type largest interface {
	Largest(ctx context.Context, tenant string) (service string, bytes int64, err error)
}
