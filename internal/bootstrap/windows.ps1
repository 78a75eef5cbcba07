# Downloads the workspace agent from the server and runs it, in PowerShell 5.1 or newer. The script never exits while the workspace may need it: on a
# problem it prints the cause, retries if that can help, and otherwise keeps running so that a user can inspect the workspace.
& {
    $ErrorActionPreference = 'Stop'
    $ProgressPreference = 'SilentlyContinue' # the progress bar of PowerShell 5.1 slows downloads down
    $name = 'coder-windows-@ARCH@.exe'
    $url = '${ACCESS_URL}'
    $env:CODER_AGENT_URL = $url
    $env:CODER_AGENT_AUTH = '${AUTH_TYPE}'
    if ($PSVersionTable.PSVersion.Major -lt 6) {
        [Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
    }

    # Options of every request. PowerShell 5.1 knows the system's proxy, but not the variables that programs use.
    $web = @{ UseBasicParsing = $true }
    $uri = [Uri]$url
    $proxy = if ($uri.Scheme -eq 'https') { $env:HTTPS_PROXY } else { $env:HTTP_PROXY }
    $direct = @("$env:NO_PROXY" -split ',' | ForEach-Object { $_.Trim().TrimStart('*').TrimStart('.') } | Where-Object { $_ } |
            Where-Object { $uri.Host -eq $_ -or $uri.Host.EndsWith(".$_") })
    if ($proxy -and $direct.Count -eq 0) { $web.Proxy = $proxy }

    # Tells the server, which shows the text with the workspace. The token is in the body. A server whose certificate is not trusted gets nothing.
    function Send-Problem([string]$text) {
        if (-not $env:CODER_AGENT_TOKEN) { return }
        $body = [Text.Encoding]::UTF8.GetBytes("$env:CODER_AGENT_TOKEN`n$text`n")
        try {
            Invoke-WebRequest @web -Method Post -Uri "${url}api/v2/workspaceagents/me/startup-problem" -ContentType 'text/plain' -Body $body -TimeoutSec 15 | Out-Null
        } catch {
            Write-Host "coder agent: this cannot be reported to the server: $($_.Exception.Message)"
        }
    }

    function Wait-Forever([string]$text) {
        Write-Host "coder agent: $text"
        Send-Problem $text
        Write-Host 'coder agent: waiting, so that you can look; end this process when you are done'
        while ($true) { Start-Sleep -Seconds 3600 }
    }

    # Explains a failed download. Only the error itself decides, not a text that the other end chose.
    function Get-Reason($failure) {
        for ($e = $failure.Exception; $e; $e = $e.InnerException) {
            if ($e -is [IO.IOException] -and ($e.HResult -eq 0x80070070 -or $e.HResult -eq 0x80070027)) {
                return "the workspace's disk is full: remove files that are not needed on the volume of $folder, or enlarge it"
            }
            if ($e -is [Security.Authentication.AuthenticationException]) {
                return "the server's certificate is not trusted here: add its authority to this machine (Import-Certificate -CertStoreLocation Cert:\LocalMachine\Root -FilePath ca.crt), and check this machine's clock"
            }
            if ($e -is [Net.Sockets.SocketException]) {
                switch ($e.SocketErrorCode) {
                    'HostNotFound' { return "the server's name does not resolve here: check this workspace's DNS, and that the server's access URL is one that workspaces can reach" }
                    'ConnectionRefused' { return "nothing answers at the server's address: is the server up, and does a firewall let this workspace reach that port?" }
                    'TimedOut' { return 'the server does not answer: a firewall, or a proxy that is missing in HTTPS_PROXY, keeps this workspace from it' }
                }
            }
            if ($e -is [Net.WebException]) {
                switch ($e.Status) {
                    'NameResolutionFailure' { return "the server's name does not resolve here: check this workspace's DNS, and that the server's access URL is one that workspaces can reach" }
                    'Timeout' { return 'the server does not answer: a firewall, or a proxy that is missing in HTTPS_PROXY, keeps this workspace from it' }
                }
            }
            $code = if ($e.PSObject.Properties['Response'] -and $e.Response) { [int]$e.Response.StatusCode } else { 0 }
            if ($code -eq 404) { return "the server has no $name at that address: is another program behind the access URL, or this platform not served?" }
            if ($code -ge 500) { return 'the server, or a proxy before it, cannot answer now' }
        }
        return $failure.Exception.Message
    }

    # Downloads the program and compares it with the server's list of checksums.
    function Get-Agent([string]$program) {
        New-Item -ItemType Directory -Force -Path (Split-Path $program) | Out-Null
        Invoke-WebRequest @web -Uri "${url}bin/SHA256SUMS" -OutFile "$program.sums" -TimeoutSec 60
        $want = Get-Content -LiteralPath "$program.sums" | ForEach-Object { $sum, $file = $_ -split '  ', 2; if ($file -ceq $name) { $sum } }
        if (-not $want) { throw "the server's list has no ${name}: ask its operator to install a packaged release, which includes every platform" }
        Invoke-WebRequest @web -Uri "${url}bin/$name" -OutFile $program -TimeoutSec 600
        $got = (Get-FileHash -Algorithm SHA256 -LiteralPath $program).Hash.ToLowerInvariant()
        if ($got -cne $want) { throw "the download is damaged: its SHA-256 is $got, and the server's list says $want" }
        Remove-Item -Force -ErrorAction SilentlyContinue -LiteralPath "$program.sums"
    }

    $id = [Guid]::NewGuid().ToString('N')
    if ($env:LOCALAPPDATA) {
        $parent = Join-Path $env:LOCALAPPDATA 'codermesh-agent\bin'
        # Those of earlier starts. Windows keeps the programs that run.
        Get-ChildItem -Directory -ErrorAction SilentlyContinue -LiteralPath $parent | Remove-Item -Recurse -Force -ErrorAction SilentlyContinue
        $folder = Join-Path $parent $id
    } else {
        # The common folder of services, where others could prepare a name that they know.
        $folder = Join-Path $env:TEMP "codermesh-agent-$id"
    }
    $program = Join-Path $folder 'coder.exe'

    if ($env:CODER_AGENT_AUTH -eq 'token' -and -not $env:CODER_AGENT_TOKEN) {
        Wait-Forever 'CODER_AGENT_TOKEN is not set: the template has to pass coder_agent.<name>.token in it'
    }
    $wait = 1
    $told = ''
    while ($true) {
        try {
            Get-Agent $program
            break
        } catch {
            $reason = Get-Reason $_
        }
        Write-Host "coder agent: fetching ${url}bin/$name failed: $reason; next try in $wait s"
        if ($told -ne $reason) {
            Send-Problem "The agent cannot be fetched: $reason"
            $told = $reason
        }
        Start-Sleep -Seconds $wait
        $wait = [Math]::Min(2 * $wait, 32)
    }

    $env:PATH = "$folder;$env:PATH"
    try {
        & $program agent
    } catch {
        Wait-Forever "$program does not run here: is the template's arch (@ARCH@) this machine's ($env:PROCESSOR_ARCHITECTURE), and may programs run in ${folder}? $($_.Exception.Message)"
    }
}
