package coderd_test

import (
	"strings"
	"sync"
	"testing"
)

// TestAppearance checks that owners decide how the deployment presents itself, that visitors read it, that all others are refused and
// that nothing is stored that could load from elsewhere or mislead.
func TestAppearance(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	long := strings.Repeat("x", 1001)
	replay(t, s, known, []step{
		{as: "nobody", method: "GET", path: "appearance", status: 200, want: `{"application_name":"codermesh","logo_url":"","announcement_banners":[],"service_banner":{"enabled":false}}`},
		{as: "ann", method: "PUT", path: "appearance", body: `{"application_name":"Evil"}`, status: 403},
		{as: "tom", method: "PUT", path: "appearance", body: `{"application_name":"Evil"}`, status: 403},
		{as: "nobody", method: "PUT", path: "appearance", body: `{"application_name":"Evil"}`, status: 401},
		{method: "PUT", path: "appearance", body: `{"application_name":" Acme ","logo_url":"/icon/docker.svg","announcement_banners":[
			{"enabled":false,"message":"","background_color":"#000000"},{"enabled":true,"message":"<script>alert(1)</script>"}]}`, status: 200},
		{as: "nobody", method: "GET", path: "appearance", status: 200, want: `{"application_name":"Acme","logo_url":"/icon/docker.svg",
			"announcement_banners":[{"enabled":false,"background_color":"#000000"},{"enabled":true,"message":"<script>alert(1)</script>","background_color":"#4353c9"}],
			"service_banner":{"enabled":true,"message":"<script>alert(1)</script>","background_color":"#4353c9"}}`},
		{method: "PUT", path: "appearance", body: `{"logo_url":"https://evil.example.com/x.png"}`, status: 400, text: "logo_url"},
		{method: "PUT", path: "appearance", body: `{"logo_url":"//evil.example.com/x.png"}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"logo_url":"/\\evil.example.com/x.png"}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"logo_url":"data:image/svg+xml,x"}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"logo_url":"javascript:alert(1)"}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"application_name":"two\nlines"}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"application_name":"moc.\u202elive"}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"application_name":"` + long[:65] + `"}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"announcement_banners":[{"enabled":true,"message":"` + long + `"}]}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"announcement_banners":[{"enabled":true,"message":" "}]}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"announcement_banners":[{"enabled":true,"message":"x","background_color":"red;background:url(//evil)"}]}`, status: 400},
		{method: "PUT", path: "appearance", body: `{"announcement_banners":[{},{},{},{},{},{}]}`, status: 400},
		{as: "nobody", method: "GET", path: "appearance", status: 200, want: `{"application_name":"Acme"}`},
		// One change, and the two attempts of users without the right.
		{method: "GET", path: "audit?q=resource_type:appearance", status: 200, want: `{"count":3}`},
		// The one banner of older clients.
		{method: "PUT", path: "appearance", body: `{"service_banner":{"enabled":true,"message":"Maintenance","background_color":"#004852"}}`, status: 200,
			want: `{"application_name":"codermesh","announcement_banners":[{"enabled":true,"message":"Maintenance","background_color":"#004852"}]}`},
		{method: "PUT", path: "appearance", body: `{}`, status: 200, want: `{"logo_url":"","announcement_banners":[],"service_banner":{"enabled":false}}`},
	})
}

// TestAppearanceOfTwoOwners checks that changes at the same time are stored one after the other.
func TestAppearanceOfTwoOwners(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	var wg sync.WaitGroup
	for _, name := range []string{"one", "two", "three", "four"} {
		wg.Go(func() {
			replay(t, s, known, []step{{method: "PUT", path: "appearance", body: `{"application_name":"` + name + `"}`, status: 200}})
		})
	}
	wg.Wait()
	replay(t, s, known, []step{{method: "GET", path: "audit?q=resource_type:appearance", status: 200, want: `{"count":4}`}})
}
