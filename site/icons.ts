// Icons of products from the package simple-icons, which the build writes beside the drawings in public/icon. The types of the
// package make `tsc` fail if a version no longer has one of them.
import * as si from "simple-icons";
import type { Plugin } from "vite";

// For logos that are black or nearly black: it is visible on a light and on a dark page.
const grey = "#8a8f98";

// The icons by the names that templates and modules use, each with its colour unless the product's own is used.
export const icons: Record<string, readonly [icon: si.SimpleIcon, colour?: string]> = {
  almalinux: [si.siAlmalinux, grey],
  "apache-guacamole": [si.siApacheguacamole],
  bitbucket: [si.siBitbucket],
  centos: [si.siCentos],
  claude: [si.siClaude],
  clion: [si.siClion, grey],
  conda: [si.siAnaconda],
  cpp: [si.siCplusplus],
  cursor: [si.siCursor, grey],
  datagrip: [si.siDatagrip, grey],
  debian: [si.siDebian],
  discord: [si.siDiscord],
  do: [si.siDigitalocean],
  docker: [si.siDocker],
  dotnet: [si.siDotnet],
  fedora: [si.siFedora],
  "fly.io": [si.siFlydotio, grey],
  gateway: [si.siJetbrains, grey],
  gcp: [si.siGooglecloud],
  gemini: [si.siGooglegemini],
  git: [si.siGit],
  gitea: [si.siGitea],
  github: [si.siGithub, grey],
  gitlab: [si.siGitlab],
  go: [si.siGo],
  goland: [si.siGoland, grey],
  google: [si.siGoogle],
  intellij: [si.siIntellijidea, grey],
  java: [si.siOpenjdk, grey],
  javascript: [si.siJavascript],
  jetbrains: [si.siJetbrains, grey],
  "jetbrains-toolbox": [si.siJetbrains, grey],
  jfrog: [si.siJfrog],
  jupyter: [si.siJupyter],
  keycloak: [si.siKeycloak],
  kubernetes: [si.siKubernetes],
  kotlin: [si.siKotlin],
  node: [si.siNodedotjs],
  nodejs: [si.siNodedotjs],
  nomad: [si.siNomad],
  nvidia: [si.siNvidia],
  okta: [si.siOkta],
  php: [si.siPhp],
  phpstorm: [si.siPhpstorm, grey],
  postgres: [si.siPostgresql],
  pycharm: [si.siPycharm, grey],
  python: [si.siPython],
  pytorch: [si.siPytorch],
  rider: [si.siRider, grey],
  rockylinux: [si.siRockylinux],
  rstudio: [si.siRstudioide],
  ruby: [si.siRuby],
  rubymine: [si.siRubymine, grey],
  rust: [si.siRust, grey],
  swift: [si.siSwift],
  tensorflow: [si.siTensorflow],
  terraform: [si.siTerraform],
  typescript: [si.siTypescript],
  ubuntu: [si.siUbuntu],
  vault: [si.siVault],
  vscodium: [si.siVscodium],
  webstorm: [si.siWebstorm, grey],
  windsurf: [si.siWindsurf, grey],
  zed: [si.siZedindustries],
};

export function svg(name: string): string | undefined {
  const found = Object.hasOwn(icons, name) ? icons[name] : undefined;
  if (!found) return undefined;
  const [icon, colour = `#${icon.hex}`] = found;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="${colour}"><path d="${icon.path}"/></svg>\n`;
}

// productIcons serves the icons during development and adds them to the build.
export function productIcons(): Plugin {
  return {
    name: "product-icons",
    configureServer(server) {
      server.middlewares.use((req, res, next) => {
        const content = svg(/^\/icon\/([^/?]+)\.svg(\?|$)/.exec(req.url ?? "")?.[1] ?? "");
        if (content === undefined) return next();
        res.setHeader("Content-Type", "image/svg+xml");
        res.end(content);
      });
    },
    generateBundle() {
      for (const name of Object.keys(icons)) {
        this.emitFile({ type: "asset", fileName: `icon/${name}.svg`, source: svg(name)! });
      }
    },
  };
}
