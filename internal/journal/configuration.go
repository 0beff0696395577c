package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// A Setting is a key of a job's configuration and its value, without secrets.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// A Configuration is the part of a replica's configuration that is published for readers. It has no secrets.
type Configuration struct {
	// Common lists all settings in the order of the reference, each with the value for a job that does not set it.
	Common []Setting
	// Jobs maps the name of each job to its configuration.
	Jobs map[string]JobConfig
}

// A JobConfig is the published configuration of one job.
type JobConfig struct {
	// Digest is a hash that differs between configurations of the job.
	Digest string
	// Own maps the keys of the settings that differ from Common to their values.
	Own map[string]string
}

// A ConfigID identifies a published configuration. Digest is the digest of the whole configuration. Version is the version of the program that read it, because
// other versions may have other keys.
type ConfigID struct{ Digest, Version string }

func (id ConfigID) String() string {
	return fmt.Sprintf("%.40q of version %.40q", id.Digest, id.Version)
}

// A header is the part of a published configuration that all jobs share.
type header struct {
	// Jobs is the number of jobs in the hash. A hash with more or fewer jobs is incomplete.
	Jobs     int       `json:"jobs"`
	Settings []Setting `json:"settings"`
}

const (
	// headerField is the field of the header in the hash of a configuration. All other fields are names of jobs. No job can have the name "*".
	headerField = "*"
	// settingsBytes is the number of bytes of settings per round trip. mostSettingsBytes is the limit per configuration. Further jobs are left out.
	settingsBytes, mostSettingsBytes = 256 << 10, 4 << 20
	// mostSettings, longestKey and longestSetting are the limits of a job's settings.
	mostSettings, longestKey, longestSetting = 200, 64, 4096
)

// KeepConfiguration keeps a configuration in Redis for ttl. Call it again well before ttl has passed. All replicas with the same configuration and version
// share one copy: the first call writes it, later calls extend its time to live. KeepConfiguration calls its function argument, which returns the
// configuration, only if something has to be written. If the function is nil, nothing is written. An incomplete or damaged copy is rewritten. In case of damage
// the error wraps ErrCorrupt, even if the copy was rewritten.
func (g registry) KeepConfiguration(ctx context.Context, id ConfigID, ttl time.Duration, of func() Configuration) error {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	missing, damaged, err := g.refreshConfiguration(ctx, id, ttl)
	if err == nil && of != nil {
		of = sync.OnceValue(of)
		if missing.digests {
			err = g.writeDigests(ctx, g.digestsKey(id), of(), ttl)
		}
		if err == nil && missing.settings {
			err = g.writeSettings(ctx, g.settingsKey(id), of, ttl)
		}
	}
	return wrapIf("keep the configuration of jobs", multierr.Join(err, damaged))
}

type missingParts struct{ digests, settings bool }

func (g registry) refreshConfiguration(ctx context.Context, id ConfigID, ttl time.Duration) (missing missingParts, damaged, err error) {
	var kind *redis.StatusCmd
	var fields *redis.IntCmd
	var head *redis.StringCmd
	cmds, err := g.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.PExpire(ctx, g.digestsKey(id), ttl)
		p.PExpire(ctx, g.settingsKey(id), ttl)
		kind, fields, head = p.Type(ctx, g.digestsKey(id)), p.HLen(ctx, g.settingsKey(id)), p.HGet(ctx, g.settingsKey(id), headerField)
		return nil
	})
	if damaged, err = sortErrors(ctx, cmds, err); err != nil {
		return missing, nil, err
	}
	h, faulty := decodeHeader(head.Val())
	if head.Err() == nil && faulty != nil {
		damaged = multierr.Join(damaged, faulty)
	}
	whole := head.Err() == nil && faulty == nil && fields.Val() == int64(h.Jobs)+1
	return missingParts{digests: kind.Val() != "string", settings: !whole}, damaged, nil
}

func (g registry) digestsKey(id ConfigID) string { return g.key("digests:" + id.Digest) }

func (g registry) settingsKey(id ConfigID) string {
	return g.key("settings:" + id.Digest + ":" + id.Version)
}

func (g registry) writeDigests(ctx context.Context, key string, c Configuration, ttl time.Duration) error {
	digests := make(map[string]string, len(c.Jobs))
	for job, part := range c.Jobs {
		digests[job] = part.Digest
	}
	text, err := json.Marshal(digests)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return errorOf(ctx, g.redis.Set(ctx, key, text, ttl))
}

// writerMargin is the minimum time by which the mark of writeSettings outlives the time-out of the call.
const writerMargin = time.Second

// writeSettings rewrites the settings of all jobs, unless another replica is writing them. A key in Redis, the mark, shows that a replica is writing. Without
// the mark, a second replica could find the hash incomplete, delete it, and start over. If the writer dies, the mark expires, but only after the time-out of
// the writer's call, so no write of the old writer can follow.
func (g registry) writeSettings(ctx context.Context, key string, of func() Configuration, ttl time.Duration) error {
	mark := key + ":writer"
	mine := g.redis.SetNX(ctx, mark, "", g.timeout+writerMargin)
	if err := errorOf(ctx, mine); err != nil || !mine.Val() {
		return err
	}
	err := g.replaceSettings(ctx, key, of(), ttl)
	_ = g.redis.Del(ctx, mark).Err() // this writer has finished, even if it failed, so another replica may write
	return err
}

// replaceSettings writes the header last, so that the hash counts as incomplete if a write fails.
func (g registry) replaceSettings(ctx context.Context, key string, c Configuration, ttl time.Duration) error {
	if err := errorOf(ctx, g.redis.Del(ctx, key)); err != nil {
		return err
	}
	h := header{Settings: c.Common}
	var pairs []any
	batch, all := 0, 0
	for _, name := range slices.Sorted(maps.Keys(c.Jobs)) {
		text, err := marshalUnescaped(c.Jobs[name].Own)
		if err != nil {
			return fmt.Errorf("job %s: %w: %w", name, ErrInvalid, err)
		}
		if all += len(name) + len(text); all > mostSettingsBytes {
			break
		}
		h.Jobs++
		pairs, batch = append(pairs, name, text), batch+len(text)
		if len(pairs) < 2*maxBatch && batch < settingsBytes {
			continue
		}
		if err := g.setFields(ctx, key, ttl, pairs); err != nil {
			return err
		}
		pairs, batch = nil, 0
	}
	text, err := marshalUnescaped(h)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return g.setFields(ctx, key, ttl, append(pairs, headerField, text))
}

// marshalUnescaped returns JSON without the escapes for HTML, which take six bytes each and protect only HTML.
func marshalUnescaped(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err //nolint:wrapcheck // the caller adds what failed
}

func (g registry) setFields(ctx context.Context, key string, ttl time.Duration, pairs []any) error {
	cmds, err := g.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, pairs...)
		p.PExpire(ctx, key, ttl)
		return nil
	})
	return allErrors(ctx, cmds, err)
}

// Digests maps the digest of each given configuration to the digests of its jobs, by job name. Configurations that Redis does not have are left out. Values
// that no replica wrote are left out too, with an error that wraps ErrCorrupt.
func (g registry) Digests(ctx context.Context, configs []string) (map[string]map[string]string, error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	found := map[string]map[string]string{}
	damaged, err := pipelineEach(ctx, g.namespace, configs, maxBatch, func(p redis.Pipeliner, config string) *redis.StringCmd {
		return p.Get(ctx, g.key("digests:"+config))
	}, func(config string, text *redis.StringCmd) error {
		var jobs map[string]string
		if text.Err() != nil { // Redis has no value, or pipelineEach reports it as damaged
			return nil
		}
		if err := json.Unmarshal([]byte(text.Val()), &jobs); err != nil {
			return fmt.Errorf("digests of configuration %.40q: %w: %w", config, ErrCorrupt, err)
		}
		found[config] = jobs
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the digests of jobs: %w", err)
	}
	return found, damaged
}

// Settings returns the settings of one job in each of the configurations. Configurations that are missing or lack the job are left out. Values that no replica
// wrote are left out too, with an error that wraps ErrCorrupt.
func (g registry) Settings(ctx context.Context, job string, configs []ConfigID) (map[ConfigID][]Setting, error) {
	ctx, cancel := g.withTimeout(ctx)
	defer cancel()
	if !isName(job) {
		return nil, fmt.Errorf("read the settings of job %.40q: %w name", job, ErrInvalid)
	}
	found := map[ConfigID][]Setting{}
	damaged, err := pipelineEach(ctx, g.namespace, configs, maxBatch, func(p redis.Pipeliner, id ConfigID) *redis.SliceCmd {
		return p.HMGet(ctx, g.settingsKey(id), headerField, job)
	}, func(id ConfigID, fields *redis.SliceCmd) error {
		if fields.Err() != nil { // pipelineEach reports the value as damaged
			return nil
		}
		head, has := firstString(fields.Val()[:1])
		if !has {
			return nil
		}
		own, _ := firstString(fields.Val()[1:])
		settings, err := decodeSettings(head, own)
		if settings != nil {
			found[id] = settings
		}
		return wrapIf(fmt.Sprintf("settings of job %s in configuration %s", job, id), err)
	})
	if err != nil {
		return nil, fmt.Errorf("read the settings of job %s: %w", job, err)
	}
	return found, damaged
}

func decodeHeader(text string) (h header, err error) {
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return h, fmt.Errorf("%w: the common settings: %w", ErrCorrupt, err)
	}
	if fault := faultOf(h.Settings); fault != "" {
		return h, fmt.Errorf("%w: the common settings: %s", ErrCorrupt, fault)
	}
	return h, nil
}

// decodeSettings merges the common settings with the settings of a job. own is "" if the configuration lacks the job.
func decodeSettings(head, own string) ([]Setting, error) {
	h, err := decodeHeader(head)
	if err != nil {
		return nil, err
	}
	if own == "" {
		return nil, nil
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(own), &values); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	taken := 0
	for i := range h.Settings {
		if value, ok := values[h.Settings[i].Key]; ok {
			h.Settings[i].Value = value
			taken++
		}
	}
	if fault := faultOf(h.Settings); fault != "" {
		return nil, fmt.Errorf("%w: %s", ErrCorrupt, fault)
	}
	if taken != len(values) {
		return nil, fmt.Errorf("%w: %d settings of its own, and %d of them are known", ErrCorrupt, len(values), taken)
	}
	return h.Settings, nil
}

func faultOf(settings []Setting) string {
	if len(settings) > mostSettings {
		return fmt.Sprintf("%d settings", len(settings))
	}
	keys := map[string]bool{}
	for _, one := range settings {
		switch {
		case !isKey(one.Key) || keys[one.Key]:
			return fmt.Sprintf("key %.40q", one.Key)
		case len(one.Value) > longestSetting:
			return fmt.Sprintf("%d bytes of %s", len(one.Value), one.Key)
		}
		keys[one.Key] = true
	}
	return ""
}

// isKey reports whether s can be the key of a setting, such as "timeout" or "retry.max".
func isKey(s string) bool {
	return s != "" && len(s) <= longestKey && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '.'
	})
}
