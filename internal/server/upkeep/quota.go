package upkeep

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

// leastQuota is the smallest quota of bytes: files are measured in blocks.
const leastQuota = 100_000_000

// ParseQuotas reads quotas of tenants: a number for all tenants that are not
// named (50GB) and one for each that is (team-a=200GB). 0 is no limit. Series
// have no unit.
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

// byTenant maps tenants to numbers; "" stands for tenants that are not named.
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

// room drops a tenant's oldest windows while it uses more than nine tenths of its
// quota: agents that find no room wait, and lose what they hold for too long. It
// drops nothing if that would not make room, as when stacks fill the quota.
func (u *Upkeep) room(ctx context.Context, tenant string, now time.Time) error {
	quota := u.options.Quotas.Of(tenant).Bytes
	if quota == 0 {
		return nil
	}
	usage, err := u.options.Store.Usage(ctx, tenant)
	for {
		if err != nil {
			return err
		}
		u.usage.note(tenant, usage, now)
		most := quota - quota/10
		if usage.Bytes() < most {
			u.full[tenant] = false
			return nil
		}
		level, before, ok := usage.Oldest(now)
		if lasting := usage.Lasting(now) >= most; lasting || !ok {
			if !u.full[tenant] {
				u.logFull(ctx, tenant, usage, lasting && ok)
			}
			u.full[tenant] = true
			return nil
		}
		if err := u.dropLevel(ctx, tenant, level, before); err != nil {
			return err
		}
		had := usage.Bytes()
		if usage, err = u.options.Store.Usage(ctx, tenant); err == nil {
			u.droppedBytes.WithLabelValues(tenant, level.String()).Add(float64(max(had-usage.Bytes(), 0)))
			u.options.Log.Warn("a tenant's quota is almost full: its oldest windows are dropped", "tenant", tenant, "level", level.String(),
				"before", before.Format(time.DateOnly), "bytes", had, "bytes left", usage.Bytes(), "stacks", usage.Stacks, "quota", quota)
		}
	}
}

// logFull logs that a tenant's quota is full and that nothing is dropped: there is
// nothing to drop, or, if vain, dropping would not make room.
func (u *Upkeep) logFull(ctx context.Context, tenant string, usage *store.Usage, vain bool) {
	about := []any{"tenant", tenant, "bytes", usage.Bytes(), "stacks", usage.Stacks, "quota", u.options.Quotas.Of(tenant).Bytes}
	if !vain {
		u.options.Log.Warn("a tenant's quota is almost full, and there is nothing to drop but what came today", about...)
		return
	}
	if s, ok := u.options.Store.(largest); ok {
		if service, bytes, err := s.Largest(ctx, tenant); err == nil { // else the store cannot be read, and says so elsewhere
			about = append(about, "most of", service, "its stacks", bytes)
		}
	}
	u.options.Log.Warn("a tenant's quota is almost full of stacks and days, which are kept: nothing is dropped, since that would not make room; give it more", about...)
}

// largest is a store that knows which service's stacks take the most space.
type largest interface {
	Largest(ctx context.Context, tenant string) (service string, bytes int64, err error)
}
