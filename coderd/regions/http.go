package regions

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/region"
)

const (
	secretLength = 43 // 256 bits
	// tokenPrefix marks a token, so that a leaked one can be recognized.
	tokenPrefix = "cmwp_"
	// primary is the name of the servers' own region.
	primary = "primary"
	// maxProxies keeps the relay map below what nodes accept.
	maxProxies = 60

	maxDisplayName, maxIcon = 64, 256
)

var (
	nameForm = lazyregexp.New(`^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$`)
	// checkForm is what a proxy answers when it is asked who it is.
	checkForm = lazyregexp.New(fmt.Sprintf(`^[A-Za-z0-9]{%d}$`, region.CheckLength))
	tokenForm = lazyregexp.New(`^` + tokenPrefix + `[A-Za-z0-9]{43}$`)
)

// routes registers the routes. Only those who may change the deployment see the proxies themselves.
func (s *Service) routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/regions", rbac.AnyToken, s.listRegions)
	mux.Handle("GET "+region.LatencyPath, rbac.Public, httpapi.Serve(http.HandlerFunc(region.AnswerLatency)),
		httpapi.Uncounted("pages measure often"))
	mux.Handle("GET "+sdk.ProxyPath, rbac.Public, s.coordinate, httpapi.Uncounted("region proxies stay connected")) // coordinate checks the token itself: proxies are not users
	mux.Handle("GET /api/v2/workspaceproxies", rbac.Needs(rbac.Update, rbac.Deployment), s.list)
	mux.Handle("POST /api/v2/workspaceproxies", rbac.Needs(rbac.Update, rbac.Deployment), s.create,
		audit.On(audit.Create, audit.WorkspaceProxy), httpapi.CreatesSecret("The region proxy"))
	mux.Handle("GET /api/v2/workspaceproxies/{workspaceproxy}", rbac.Needs(rbac.Update, rbac.Deployment), s.get)
	mux.Handle("PATCH /api/v2/workspaceproxies/{workspaceproxy}", rbac.Needs(rbac.Update, rbac.Deployment), s.patch,
		audit.On(audit.Write, audit.WorkspaceProxy))
	mux.Handle("DELETE /api/v2/workspaceproxies/{workspaceproxy}", rbac.Needs(rbac.Update, rbac.Deployment), s.delete,
		audit.On(audit.Delete, audit.WorkspaceProxy))
}

func displayName(p dbsqlc.WorkspaceProxy) string {
	if p.DisplayName != "" {
		return p.DisplayName
	}
	return p.Name
}

// own returns the servers' own region.
func (s *Service) own(r *http.Request) (sdk.Region, error) {
	text, err := s.opts.DB.GetSetting(r.Context(), "deployment_id")
	if err != nil {
		return sdk.Region{}, fmt.Errorf("read deployment id: %w", err)
	}
	id, err := uuid.Parse(string(text))
	if err != nil {
		return sdk.Region{}, fmt.Errorf("read deployment id: %w", err)
	}
	return sdk.Region{
		ID: id, Name: primary, DisplayName: "Default", Healthy: true, PathAppURL: s.opts.AccessURL.String(),
		WildcardHostname: s.opts.WildcardHost,
	}, nil
}

func (s *Service) region(p dbsqlc.WorkspaceProxy, connected bool) sdk.Region {
	r := sdk.Region{
		ID: p.ID, Name: p.Name, DisplayName: displayName(p), IconURL: p.Icon, Healthy: connected,
		PathAppURL: s.opts.AccessURL.String(), WildcardHostname: s.opts.WildcardHost,
	}
	if connected && p.Apps {
		r.PathAppURL, r.WildcardHostname = p.Url, p.WildcardHost
	}
	return r
}

func (s *Service) proxy(p dbsqlc.WorkspaceProxy, connected bool) sdk.WorkspaceProxy {
	status := sdk.ProxyUnreachable
	switch {
	case connected:
		status = sdk.ProxyOK
	case p.SeenAt == nil:
		status = sdk.ProxyUnregistered
	}
	return sdk.WorkspaceProxy{
		Region: s.region(p, connected), URL: p.Url, DERPEnabled: true, DERPOnly: !p.Apps, Version: p.Version,
		Status: sdk.WorkspaceProxyStatus{Status: status, CheckedAt: time.Now().UTC()}, CreatedAt: p.CreatedAt,
		UpdatedAt: p.UpdatedAt,
	}
}

func (s *Service) listRegions(w http.ResponseWriter, r *http.Request) error {
	own, err := s.own(r)
	if err != nil {
		return err
	}
	rows, err := s.rows(r.Context())
	if err != nil {
		return err
	}
	out := sdk.Regions[sdk.Region]{Regions: sdk.List[sdk.Region]{own}}
	for _, row := range rows {
		out.Regions = append(out.Regions, s.region(row.WorkspaceProxy, row.Connected))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	own, err := s.own(r)
	if err != nil {
		return err
	}
	rows, err := s.rows(r.Context())
	if err != nil {
		return err
	}
	out := sdk.Regions[sdk.WorkspaceProxy]{Regions: sdk.List[sdk.WorkspaceProxy]{{
		Region: own, URL: s.opts.AccessURL.String(), DERPEnabled: true,
		Status: sdk.WorkspaceProxyStatus{Status: sdk.ProxyOK, CheckedAt: time.Now().UTC()},
	}}}
	for _, row := range rows {
		out.Regions = append(out.Regions, s.proxy(row.WorkspaceProxy, row.Connected))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	rows, err := s.rows(r.Context())
	if err != nil {
		return err
	}
	reference := r.PathValue("workspaceproxy")
	for _, row := range rows {
		if p := row.WorkspaceProxy; p.ID.String() == reference || strings.EqualFold(p.Name, reference) {
			return httpapi.Write(w, http.StatusOK, s.proxy(p, row.Connected))
		}
	}
	return notFound(reference)
}

func notFound(reference string) error {
	return fault.New(fault.NotFound, "There is no region proxy %q.", reference)
}

// find returns the proxy in the path, locked.
func find(r *http.Request, q *dbsqlc.Queries) (dbsqlc.WorkspaceProxy, error) {
	reference := r.PathValue("workspaceproxy")
	row, err := q.LockWorkspaceProxy(r.Context(), reference)
	if database.IsNotFound(err) {
		return row, notFound(reference)
	}
	if err != nil {
		return row, fmt.Errorf("look up region proxy: %w", err)
	}
	return row, nil
}

func newToken() secret.Token { return secret.Token(tokenPrefix + secret.Text(secretLength)) }

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	var req sdk.CreateWorkspaceProxyRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := checkFields(req.Name, req.DisplayName, req.Icon); err != nil {
		return err
	}
	ctx, token := r.Context(), newToken()
	var row dbsqlc.WorkspaceProxy
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := q.HoldWorkspaceProxies(ctx); err != nil {
			return err
		}
		n, err := q.CountWorkspaceProxies(ctx)
		if err != nil {
			return err
		}
		if n >= maxProxies {
			return fault.New(fault.Conflict, "There are %d region proxies already. Delete one first.", n)
		}
		row, err = q.InsertWorkspaceProxy(ctx, dbsqlc.InsertWorkspaceProxyParams{
			ID: uuid.New(), Name: req.Name, DisplayName: req.DisplayName, Icon: req.Icon, TokenHash: token.Hash(),
		})
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.Entry{
			ID: row.ID, Name: row.Name, Diff: audit.Diff{}.Field("name", "", row.Name).Field("display_name", "",
				row.DisplayName).Field("icon", "", row.Icon).Secret("token"),
		})
	})
	if err != nil {
		return stored(err, req.Name)
	}
	s.log.Info("region proxy created", "user", httpapi.ActorFrom(ctx).Username, "region", row.Name)
	return httpapi.Write(w, http.StatusCreated, sdk.WorkspaceProxyResponse{
		Proxy: s.proxy(row, false), Token: token.Reveal(),
	})
}

func stored(err error, name string) error {
	if database.IsUniqueViolation(err, "workspace_proxies_name") {
		return fault.New(fault.Conflict, "A region proxy named %q already exists.", name).WithField("name", "is taken")
	}
	return fmt.Errorf("store region proxy: %w", err)
}

func (s *Service) patch(w http.ResponseWriter, r *http.Request) error {
	var req sdk.PatchWorkspaceProxyRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	var row dbsqlc.WorkspaceProxy
	var token secret.Token
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		before, err := find(r, q)
		if err != nil {
			return err
		}
		to := dbsqlc.UpdateWorkspaceProxyParams{
			ID: before.ID, Name: cmp.Or(req.Name, before.Name),
			DisplayName: cmp.Or(req.DisplayName, before.DisplayName), Icon: cmp.Or(req.Icon, before.Icon),
			TokenHash: before.TokenHash,
		}
		if err := checkFields(to.Name, to.DisplayName, to.Icon); err != nil {
			return err
		}
		diff := audit.Diff{}.Field("name", before.Name, to.Name).Field("display_name", before.DisplayName,
			to.DisplayName).Field("icon", before.Icon, to.Icon)
		if req.RegenerateToken {
			token = newToken()
			to.TokenHash, diff = token.Hash(), diff.Secret("token")
		}
		if row, err = q.UpdateWorkspaceProxy(ctx, to); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.Entry{ID: row.ID, Name: row.Name, Diff: diff})
	})
	if err != nil {
		return stored(err, req.Name)
	}
	rows, err := s.rows(ctx)
	if err != nil {
		return err
	}
	connected := false
	for _, other := range rows {
		connected = connected || other.WorkspaceProxy.ID == row.ID && other.Connected && !req.RegenerateToken
	}
	return httpapi.Write(w, http.StatusOK, sdk.WorkspaceProxyResponse{
		Proxy: s.proxy(row, connected), Token: token.Reveal(),
	})
}

func (s *Service) delete(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		row, err := find(r, q)
		if err != nil {
			return err
		}
		if err := q.DeleteWorkspaceProxy(ctx, row.ID); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.Entry{ID: row.ID, Name: row.Name})
	})
	if err != nil {
		return fmt.Errorf("delete region proxy: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The region proxy has been deleted."})
}

func checkFields(name, display, icon string) error {
	refused := fault.New(fault.Invalid, "The region proxy cannot be stored.")
	switch {
	case len(name) > 32 || !nameForm().MatchString(name):
		refused.WithField("name", "must be at most 32 letters and digits, with single hyphens between them")
	case strings.EqualFold(name, primary) || strings.EqualFold(name, "me"):
		refused.WithField("name", "is reserved")
	case uuid.Validate(name) == nil:
		refused.WithField("name", "must not be an id")
	}
	if !utf8.ValidString(display) || utf8.RuneCountInString(display) > maxDisplayName ||
		strings.ContainsFunc(display, httpapi.Hidden) {
		refused.WithField("display_name",
			fmt.Sprintf("must be at most %d characters, all of them visible", maxDisplayName))
	}
	if !utf8.ValidString(icon) || len(icon) > maxIcon {
		refused.WithField("icon", fmt.Sprintf("must be at most %d bytes", maxIcon))
	}
	if len(refused.Fields) > 0 {
		return refused
	}
	return nil
}
