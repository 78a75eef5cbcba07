# A workspace is a Windows machine on Azure. Stopping the workspace deletes the machine; the drive W: is a disk, which outlives it.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 4.0"
    }
    random = {
      source  = "hashicorp/random"
      version = "~> 3.0"
    }
  }
}

variable "subscription_id" {
  description = "The Azure subscription of workspaces."
  type        = string
}

data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "region" {
  name         = "region"
  display_name = "Region"
  description  = "Where the machine is."
  default      = "eastus"
  mutable      = false
  order        = 1

  option {
    name  = "East US"
    value = "eastus"
  }
  option {
    name  = "West US 2"
    value = "westus2"
  }
  option {
    name  = "West Europe"
    value = "westeurope"
  }
  option {
    name  = "Germany West Central"
    value = "germanywestcentral"
  }
  option {
    name  = "Central India"
    value = "centralindia"
  }
  option {
    name  = "Southeast Asia"
    value = "southeastasia"
  }
}

data "coder_parameter" "size" {
  name         = "size"
  display_name = "Machine"
  description  = "How large the machine is."
  default      = "Standard_D2s_v5"
  mutable      = true
  order        = 2

  option {
    name  = "2 CPUs, 4 GiB"
    value = "Standard_B2s"
  }
  option {
    name  = "2 CPUs, 8 GiB"
    value = "Standard_D2s_v5"
  }
  option {
    name  = "4 CPUs, 16 GiB"
    value = "Standard_D4s_v5"
  }
  option {
    name  = "8 CPUs, 32 GiB"
    value = "Standard_D8s_v5"
  }
}

data "coder_parameter" "disk" {
  name         = "disk"
  display_name = "Disk (GiB)"
  description  = "The size of the drive W:. It can grow later; then extend the volume in Windows."
  type         = "number"
  form_type    = "slider"
  default      = 60
  mutable      = true
  order        = 3

  validation {
    min       = 10
    max       = 1000
    monotonic = "increasing"
  }
}

data "coder_parameter" "spot" {
  name         = "spot"
  display_name = "Spot"
  description  = "Costs less, but Azure may take the machine away at any time. The drive W: stays."
  type         = "bool"
  form_type    = "switch"
  default      = false
  mutable      = true
  order        = 4
}

data "coder_workspace_preset" "small" {
  name    = "Small"
  default = true
  parameters = {
    size = "Standard_D2s_v5"
    disk = "60"
    spot = "false"
  }
}

data "coder_workspace_preset" "large" {
  name = "Large"
  parameters = {
    size = "Standard_D8s_v5"
    disk = "150"
    spot = "false"
  }
}

data "coder_workspace_preset" "spot" {
  name = "Large, spot"
  parameters = {
    size = "Standard_D8s_v5"
    disk = "150"
    spot = "true"
  }
}

# The machine proves who it is with a document that the cloud signs: no token is in its user data, which every program there can read.
resource "coder_agent" "main" {
  os   = "windows"
  arch = "amd64"
  auth = "azure-instance-identity"

  env = {
    GIT_AUTHOR_NAME     = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_AUTHOR_EMAIL    = data.coder_workspace_owner.me.email
    GIT_COMMITTER_NAME  = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_COMMITTER_EMAIL = data.coder_workspace_owner.me.email
  }

  metadata {
    key          = "cpu"
    display_name = "CPU"
    script       = "coder stat cpu"
    interval     = 10
    timeout      = 5
  }
  metadata {
    key          = "disk"
    display_name = "Disk W:"
    script       = "coder stat disk --path W:\\"
    interval     = 60
    timeout      = 5
  }
}

# The disk is detached before the machine ends: what programs wrote must be on it by then.
resource "coder_script" "flush" {
  agent_id     = coder_agent.main.id
  display_name = "Write to the disk"
  icon         = "/icon/database.svg"
  run_on_stop  = true
  script       = "Write-VolumeCache -DriveLetter W"
}

locals {
  # A name without the owner: a prebuilt workspace keeps its machine when it gets one.
  name = "coder-${data.coder_workspace.me.id}"

  # The script makes the account, and a scheduled task that starts the agent at every boot. The account has a password that nothing keeps.
  setup = <<-EOT
    $ErrorActionPreference = 'Stop'
    $ProgressPreference = 'SilentlyContinue'
    $folder = Join-Path $env:ProgramData 'coder-agent'
    New-Item -ItemType Directory -Force -Path $folder | Out-Null
    $packed = [IO.MemoryStream]::new([Convert]::FromBase64String('${base64gzip(coder_agent.main.init_script)}'))
    $script = [IO.StreamReader]::new([IO.Compression.GZipStream]::new($packed, [IO.Compression.CompressionMode]::Decompress))
    [IO.File]::WriteAllText("$folder\agent.ps1", $script.ReadToEnd(), [Text.UTF8Encoding]::new($true))
    # The disk is attached before this script runs. Only a raw one, as new ones are, gets a file system.
    $disk = Get-Disk | Where-Object { $_.Location -like '*LUN 10' }
    if ($disk.IsOffline) { $disk | Set-Disk -IsOffline $false }
    if ($disk.PartitionStyle -eq 'RAW') {
      $disk | Initialize-Disk -PartitionStyle GPT -PassThru | New-Partition -DriveLetter W -UseMaximumSize |
        Format-Volume -FileSystem NTFS -NewFileSystemLabel home -Confirm:$false | Out-Null
    } else {
      $part = $disk | Get-Partition | Where-Object { $_.Type -eq 'Basic' }
      if ($part.DriveLetter -ne 'W') { $part | Set-Partition -NewDriveLetter W }
    }
    if (-not (Get-LocalUser -Name coder -ErrorAction SilentlyContinue)) {
      $random = [byte[]]::new(30)
      [Security.Cryptography.RandomNumberGenerator]::Create().GetBytes($random)
      $password = ConvertTo-SecureString -AsPlainText -Force ('aA1!' + [Convert]::ToBase64String($random))
      New-LocalUser -Name coder -Password $password -PasswordNeverExpires | Out-Null
      Add-LocalGroupMember -SID S-1-5-32-544 -Member coder # Administrators
    }
    $run = "/d /c powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File `"$folder\agent.ps1`" > `"$folder\agent.log`" 2>&1"
    Register-ScheduledTask -Force -TaskName coder-agent `
      -Action (New-ScheduledTaskAction -Execute cmd.exe -Argument $run) `
      -Trigger (New-ScheduledTaskTrigger -AtStartup) `
      -Principal (New-ScheduledTaskPrincipal -UserId coder -LogonType S4U -RunLevel Highest) `
      -Settings (New-ScheduledTaskSettingsSet -ExecutionTimeLimit ([TimeSpan]::Zero) -RestartCount 999 `
        -RestartInterval (New-TimeSpan -Minutes 1) -MultipleInstances IgnoreNew) | Out-Null
    Start-ScheduledTask -TaskName coder-agent
  EOT
}

# The provider takes the service principal from ARM_CLIENT_ID, ARM_TENANT_ID and ARM_CLIENT_SECRET_FILE_PATH.
provider "azurerm" {
  subscription_id = var.subscription_id

  features {}
}

resource "azurerm_resource_group" "workspace" {
  name     = local.name
  location = data.coder_parameter.region.value
}

resource "azurerm_virtual_network" "workspace" {
  name                = "network"
  location            = azurerm_resource_group.workspace.location
  resource_group_name = azurerm_resource_group.workspace.name
  address_space       = ["10.0.0.0/24"]
}

resource "azurerm_subnet" "workspace" {
  name                 = "subnet"
  resource_group_name  = azurerm_resource_group.workspace.name
  virtual_network_name = azurerm_virtual_network.workspace.name
  address_prefixes     = ["10.0.0.0/24"]
}

# The agent connects to the server: nothing needs a port here, and none is open.
resource "azurerm_network_security_group" "closed" {
  name                = "closed"
  location            = azurerm_resource_group.workspace.location
  resource_group_name = azurerm_resource_group.workspace.name

  security_rule {
    name                       = "closed"
    priority                   = 100
    direction                  = "Inbound"
    access                     = "Deny"
    protocol                   = "*"
    source_port_range          = "*"
    source_address_prefix      = "*"
    destination_port_range     = "*"
    destination_address_prefix = "*"
  }
}

# The way out. Azure charges for it as long as it exists, so it ends with the machine.
resource "azurerm_public_ip" "workspace" {
  count               = data.coder_workspace.me.start_count
  name                = "address"
  location            = azurerm_resource_group.workspace.location
  resource_group_name = azurerm_resource_group.workspace.name
  sku                 = "Standard"
  allocation_method   = "Static"
}

resource "azurerm_network_interface" "workspace" {
  count               = data.coder_workspace.me.start_count
  name                = "interface"
  location            = azurerm_resource_group.workspace.location
  resource_group_name = azurerm_resource_group.workspace.name

  ip_configuration {
    name                          = "address"
    subnet_id                     = azurerm_subnet.workspace.id
    private_ip_address_allocation = "Dynamic"
    public_ip_address_id          = azurerm_public_ip.workspace[0].id
  }
}

resource "azurerm_network_interface_security_group_association" "closed" {
  count                     = data.coder_workspace.me.start_count
  network_interface_id      = azurerm_network_interface.workspace[0].id
  network_security_group_id = azurerm_network_security_group.closed.id
}

resource "azurerm_managed_disk" "home" {
  name                 = "home"
  location             = azurerm_resource_group.workspace.location
  resource_group_name  = azurerm_resource_group.workspace.name
  storage_account_type = "StandardSSD_LRS"
  create_option        = "Empty"
  disk_size_gb         = data.coder_parameter.disk.value

  # The disk holds people's work: no change of the template may replace it.
  lifecycle {
    ignore_changes = [name, location, resource_group_name, storage_account_type, create_option]
  }
}

# Azure wants a password for the machine's first account. Nothing uses it: no port is open.
resource "random_password" "unused" {
  length      = 32
  min_lower   = 1
  min_upper   = 1
  min_numeric = 1
  min_special = 1
}

resource "azurerm_windows_virtual_machine" "workspace" {
  count                 = data.coder_workspace.me.start_count
  name                  = "workspace"
  computer_name         = "c${substr(replace(data.coder_workspace.me.id, "-", ""), 0, 14)}"
  location              = azurerm_resource_group.workspace.location
  resource_group_name   = azurerm_resource_group.workspace.name
  size                  = data.coder_parameter.size.value
  network_interface_ids = [azurerm_network_interface.workspace[0].id]
  priority              = data.coder_parameter.spot.value ? "Spot" : "Regular"
  eviction_policy       = data.coder_parameter.spot.value ? "Deallocate" : null
  admin_username        = "first"
  admin_password        = random_password.unused.result
  custom_data           = base64encode(local.setup)
  tags                  = { workspace = data.coder_workspace.me.id, owner = data.coder_workspace_owner.me.name }

  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "StandardSSD_LRS"
  }

  source_image_reference {
    publisher = "MicrosoftWindowsServer"
    offer     = "WindowsServer"
    sku       = "2022-datacenter-azure-edition"
    version   = "latest"
  }

  # Tags follow at the next start, which makes a new machine.
  lifecycle {
    ignore_changes = [tags]
  }

  depends_on = [azurerm_network_interface_security_group_association.closed]
}

resource "azurerm_virtual_machine_data_disk_attachment" "home" {
  count              = data.coder_workspace.me.start_count
  managed_disk_id    = azurerm_managed_disk.home.id
  virtual_machine_id = azurerm_windows_virtual_machine.workspace[0].id
  lun                = 10
  caching            = "None"
}

# Azure leaves the script in a file, and this runs it.
resource "azurerm_virtual_machine_extension" "setup" {
  count                = data.coder_workspace.me.start_count
  name                 = "setup"
  virtual_machine_id   = azurerm_windows_virtual_machine.workspace[0].id
  publisher            = "Microsoft.Compute"
  type                 = "CustomScriptExtension"
  type_handler_version = "1.10"

  settings = jsonencode({
    commandToExecute = "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -Command \"& ([ScriptBlock]::Create([IO.File]::ReadAllText('C:\\AzureData\\CustomData.bin')))\""
  })

  depends_on = [azurerm_virtual_machine_data_disk_attachment.home]
}
