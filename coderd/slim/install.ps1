# Installs the coder command line from the codermesh server that serves this script. In PowerShell 5.1 or newer:
#
#   irm https://coder.example.com/install.ps1 | iex
#
# $env:INSTALL_DIR names another folder than %LOCALAPPDATA%\Programs\coder. The script does not verify signatures of releases.

& {
    Set-StrictMode -Version 3.0
    $ErrorActionPreference = 'Stop'
    $ProgressPreference = 'SilentlyContinue' # the progress bar of PowerShell 5.1 slows downloads down
    $server = @SERVER@

    if ($env:CODER_RELEASE_KEY) {
        throw "this script cannot verify signatures. Try: verify and unpack the archive of the release, or unset CODER_RELEASE_KEY"
    }
    if ($PSVersionTable.PSVersion.Major -ge 6 -and -not $IsWindows) {
        throw "this script installs on Windows. Try: curl -fsSL $server/install.sh | sh"
    }
    if ($PSVersionTable.PSVersion.Major -lt 6) {
        [Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
    }
    # A 32-bit PowerShell on a 64-bit system finds the system's processor in the second variable.
    $processor = if ($env:PROCESSOR_ARCHITEW6432) { $env:PROCESSOR_ARCHITEW6432 } else { $env:PROCESSOR_ARCHITECTURE }
    $arch = switch ($processor) {
        'AMD64' { 'amd64' }
        'ARM64' { 'arm64' }
        default { throw "there is no coder for the processor $processor. Try: use an amd64 or arm64 machine" }
    }
    $name = "coder-windows-$arch.exe"
    $folder = if ($env:INSTALL_DIR) { $env:INSTALL_DIR } else { Join-Path $env:LOCALAPPDATA 'Programs\coder' }
    $program = Join-Path $folder 'coder.exe'
    New-Item -ItemType Directory -Force -Path $folder | Out-Null
    $new = Join-Path $folder ('coder-' + [Guid]::NewGuid().ToString('N') + '.exe')

    Write-Host "Installing $name from $server"
    try {
        # Without a file name this would be bytes or text, depending on the version of PowerShell.
        Invoke-WebRequest -UseBasicParsing -Uri "$server/bin/SHA256SUMS" -OutFile $new
        $sums = @(Get-Content -LiteralPath $new)
        if ($sums.Count -eq 0 -or @($sums -cnotmatch '^[0-9a-f]{64}  coder-[a-z0-9.-]+$').Count -gt 0) {
            throw "$server/bin/SHA256SUMS is not a list of checksums. Try: check that no proxy or sign-in page answers for $server"
        }
        $want = $sums | ForEach-Object { $sum, $file = $_ -split '  ', 2; if ($file -ceq $name) { $sum } }
        if (-not $want) {
            throw "the server has no $name. Try: ask its operator to install a packaged release, which includes every platform"
        }
        Invoke-WebRequest -UseBasicParsing -Uri "$server/bin/$name" -OutFile $new
        $got = (Get-FileHash -Algorithm SHA256 -LiteralPath $new).Hash.ToLowerInvariant()
        if ($got -cne $want) {
            throw "the download is damaged: its SHA-256 is $got, and the server's list says $want. Try: run this command again"
        }
        $version = & $new version
        if ($LASTEXITCODE -ne 0) { throw "the program does not run on this machine" }
        # Windows can rename a running program, but not replace it.
        if (Test-Path -LiteralPath $program) { Move-Item -Force -LiteralPath $program -Destination "$program.old" }
        Move-Item -LiteralPath $new -Destination $program
        Remove-Item -Force -ErrorAction SilentlyContinue -LiteralPath "$program.old"
    } finally {
        Remove-Item -Force -ErrorAction SilentlyContinue -LiteralPath $new
    }

    $path = [Environment]::GetEnvironmentVariable('Path', 'User')
    if (@($path -split ';') -notcontains $folder) {
        [Environment]::SetEnvironmentVariable('Path', (@($path, $folder) | Where-Object { $_ }) -join ';', 'User')
    }
    if (@($env:Path -split ';') -notcontains $folder) { $env:Path = "$env:Path;$folder" }

    Write-Host "Installed $version as $program"
    Write-Host "For completion, run: Add-Content `$PROFILE 'coder completion powershell | Out-String | Invoke-Expression'"
    Write-Host "Sign in with: coder login $server"
}
